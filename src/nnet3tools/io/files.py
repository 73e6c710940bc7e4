"""Kaldi's extended file names: files, offsets into files, pipes, standard input and output.

A file that is written appears whole or not at all (`whole_file`).
"""

from __future__ import annotations

import contextlib
import enum
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import BinaryIO, cast

from nnet3tools.errors import DataError, OptionError
from nnet3tools.io import handover, log
from nnet3tools.io.reader import Reader
from nnet3tools.io.specifiers import parse_rspecifier, parse_wspecifier
from nnet3tools.io.whole_file import prove_writable, whole_file
from nnet3tools.io.writer import Writer

__all__ = [
    "Kind",
    "classify_input",
    "classify_output",
    "open_input",
    "open_output",
    "prove_output",
    "read_text",
    "read_text_lines",
    "split_offset",
]

_OFFSET = re.compile(r"(.+):([0-9]+)", re.S)
_MAX_OFFSET = (1 << 63) - 1
_BROKEN_PIPE_STATUSES = (-signal.SIGPIPE, 128 + signal.SIGPIPE)


class Kind(enum.Enum):
    """Kinds of things that an rxfilename or wxfilename names."""

    STANDARD = "standard input or output"
    FILE = "a file"
    OFFSET = "an offset into a file"
    PIPE = "a pipe"


def classify_input(name: str) -> Kind:
    """The kind of an rxfilename; OptionError if it names nothing that can be read."""
    _reject_zero_byte(name)
    if name in ("", "-"):
        return Kind.STANDARD
    if name.endswith("|") and not name.startswith("|"):
        return Kind.PIPE
    _reject_odd_names(name, "read", "a command to read from ends in '|'")
    return Kind.OFFSET if _OFFSET.fullmatch(name) else Kind.FILE


def classify_output(name: str) -> Kind:
    """The kind of a wxfilename; OptionError if it names nothing that can be written."""
    _reject_zero_byte(name)
    if name in ("", "-"):
        return Kind.STANDARD
    if name.startswith("|"):
        return Kind.PIPE
    _reject_odd_names(name, "written", "a command to write to starts with '|'")
    if _OFFSET.fullmatch(name):
        raise OptionError(f"'{name}' cannot be written: it names an offset into a file")
    return Kind.FILE


def _reject_zero_byte(name: str) -> None:
    """Neither the system's calls nor the shell take one."""
    if "\0" in name:
        raise OptionError(f"{name[:60]!r} holds a zero byte")


def _reject_odd_names(name: str, verb: str, hint: str) -> None:
    if name != name.strip():
        raise OptionError(f"'{name}' cannot be {verb}: it begins or ends with white space")
    if name[0] in "as" and _is_table(name):
        raise OptionError(f"'{name}' cannot be {verb}: expected a file, found a table specifier")
    if "|" in name:
        raise OptionError(f"'{name}' cannot be {verb}: {hint}")


def _is_table(name: str) -> bool:
    for parse in (parse_rspecifier, parse_wspecifier):
        with contextlib.suppress(OptionError):
            parse(name)
            return True
    return False


def split_offset(name: str) -> tuple[str, int]:
    """'file:123' as ('file', 123); 0 for a plain name."""
    match = _OFFSET.fullmatch(name)
    if match is None:
        return name, 0
    if len(digits := match[2].lstrip("0")) > 19 or int(digits or "0") > _MAX_OFFSET:
        raise OptionError(f"'{name[:200]}' names an offset that no file has")
    return match[1], int(digits or "0")


# -- reading


@contextlib.contextmanager
def open_input(rxfilename: str, header: bool = True) -> Iterator[Reader]:
    r"""A Reader of a file, 'file:offset', '-' or 'command |'.

    With `header` a leading "\0B" is consumed and sets the reader's `binary`. DataError if it
    cannot be opened, or if a command read to its end fails.
    """
    if (handed := handover.find(rxfilename)) is not None:
        reader = handed.reader(rxfilename)
        if header:
            reader.read_header()
        yield reader
        return
    kind = classify_input(rxfilename)
    opener = {Kind.STANDARD: _open_stdin, Kind.PIPE: _open_pipe_in}.get(kind, _open_file)
    with opener(rxfilename) as reader:
        if header:
            reader.read_header()
        yield reader


@contextlib.contextmanager
def _open_stdin(rxfilename: str) -> Iterator[Reader]:
    # Readers have their own buffer. A thread that waits in sys.stdin.buffer would hold its lock,
    # and Python aborts if that is so when the program ends.
    file = sys.stdin.buffer
    yield Reader(cast(BinaryIO, getattr(file, "raw", file)), "standard input")


@contextlib.contextmanager
def _open_file(rxfilename: str) -> Iterator[Reader]:
    path, offset = split_offset(rxfilename)
    try:
        file = open(path, "rb", buffering=0)
    except OSError as error:
        raise DataError(f"cannot open '{path}' for reading: {error.strerror}") from None
    with file:
        reader = Reader(file, path)
        if offset:
            reader.seek(offset)
        yield reader


@contextlib.contextmanager
def _open_pipe_in(rxfilename: str) -> Iterator[Reader]:
    command = rxfilename[:-1].strip()
    process = subprocess.Popen(command, shell=True, stdout=subprocess.PIPE, bufsize=0)
    assert process.stdout is not None
    reader = Reader(cast(BinaryIO, process.stdout), f"pipe '{rxfilename}'")
    try:
        yield reader
        complete = reader.peek_byte() < 0 if reader.ended else False
    except DataError as error:
        process.stdout.close()
        if (status := process.wait()) not in (0, *_BROKEN_PIPE_STATUSES):
            raise DataError(f"{error} (the command ended with status {status})") from None
        raise
    finally:
        process.stdout.close()
        status = process.wait()
    if status != 0 and (complete or status not in _BROKEN_PIPE_STATUSES):
        raise DataError(f"command '{command}' ended with status {status}")


def read_text(rxfilename: str) -> str:
    """A text file (or pipe, or standard input) as a whole."""
    with open_input(rxfilename, header=False) as reader:
        return reader.read_rest()


def read_text_lines(rxfilename: str) -> list[str]:
    """All lines of a text file (or pipe, or standard input), without their newlines."""
    *lines, last = read_text(rxfilename).split("\n")
    return [line.removesuffix("\r") for line in ([*lines, last] if last else lines)]


# -- writing


@contextlib.contextmanager
def open_output(wxfilename: str, binary: bool = True, header: bool = True) -> Iterator[Writer]:
    r"""A Writer to a file, '-' or '| command'; with `header` and `binary` it begins with "\0B".

    A file appears when the block ends without an exception, else it stays as it was. DataError if
    it cannot be written, or if a command fails.
    """
    if (handed := handover.sink(wxfilename)) is not None:
        with handover.open_sink(handed) as file:
            writer = Writer(file, binary, wxfilename)
            if header:
                writer.write_header()
            yield writer
        return
    kind = classify_output(wxfilename)
    opener = {Kind.STANDARD: _open_stdout, Kind.PIPE: _open_pipe_out}.get(kind, _write_file)
    with opener(wxfilename) as (file, name):
        writer = Writer(file, binary, name)
        if header:
            writer.write_header()
        yield writer


@contextlib.contextmanager
def _open_stdout(wxfilename: str) -> Iterator[tuple[BinaryIO, str]]:
    sys.stdout.flush()
    yield sys.stdout.buffer, "standard output"
    sys.stdout.buffer.flush()


@contextlib.contextmanager
def _open_pipe_out(wxfilename: str) -> Iterator[tuple[BinaryIO, str]]:
    command = wxfilename[1:].strip()
    sys.stdout.flush()
    process = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE)
    assert process.stdin is not None
    broken = False
    try:
        yield cast(BinaryIO, process.stdin), f"pipe '{wxfilename}'"
        process.stdin.close()
    except BrokenPipeError:
        broken = True
    except BaseException:
        process.terminate()
        raise
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        status = process.wait()
    if broken:
        raise DataError(f"command '{command}' ended with status {status} before all was written")
    if status != 0:
        _warn_of_status(wxfilename, status)


def _warn_of_status(wxfilename: str, status: int) -> None:
    """As in Kaldi a command that took all and then failed does not fail the program."""
    # What wait() gives: an exit status in the second byte, or a signal's number.
    found = -status if status < 0 else status << 8
    log.warning(f"Pipe {wxfilename} had nonzero return status {found}")


@contextlib.contextmanager
def _write_file(path: str) -> Iterator[tuple[BinaryIO, str]]:
    with whole_file(path) as file:
        yield file, path


def prove_output(wxfilename: str) -> None:
    """DataError if a file cannot be written: to be asked before a long run."""
    if handover.sink(wxfilename) is None and classify_output(wxfilename) is Kind.FILE:
        prove_writable(wxfilename)
