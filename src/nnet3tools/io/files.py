"""Kaldi's extended file names: files, offsets into files, pipes, standard input and output.

An output file appears whole or not at all (`whole_file`).
"""

from __future__ import annotations

import contextlib
import enum
import io
import re
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, cast

from nnet3tools.errors import DataError, OptionError, failures_named, quoted
from nnet3tools.io import handover
from nnet3tools.io.checked import MISTAKES, NamedFile
from nnet3tools.io.input_buffer import MAX_TEXT
from nnet3tools.io.reader import Reader
from nnet3tools.io.specifiers import parse_rspecifier, parse_wspecifier
from nnet3tools.io.whole_file import prove_writable, whole_file
from nnet3tools.io.writer import Writer
from nnet3tools.number_text import parse_int
from nnet3tools.options import commands_are_refused

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import Popen

_OFFSET = re.compile(r"(.+):([0-9]+)", re.S)
_MAX_OFFSET = (1 << 63) - 1
_BROKEN_PIPE_STATUSES = (-signal.SIGPIPE, 128 + signal.SIGPIPE)


class FileKind(enum.Enum):
    """The kinds of inputs and outputs that file names can mean, such as a file or a pipe."""

    STANDARD = "standard input or output"
    FILE = "a file"
    OFFSET = "an offset into a file"
    PIPE = "a pipe"


def classify_input(name: str) -> FileKind:
    """The kind of an rxfilename. OptionError if the name cannot be read from."""
    _reject_zero_byte(name)
    if name in ("", "-"):
        return FileKind.STANDARD
    if name.endswith("|") and not name.startswith("|"):
        return FileKind.PIPE
    _reject_odd_names(name, "read", "a command to read from ends in '|'")
    return FileKind.OFFSET if _OFFSET.fullmatch(name) else FileKind.FILE


def classify_output(name: str) -> FileKind:
    """The kind of a wxfilename. OptionError if the name cannot be written to."""
    _reject_zero_byte(name)
    if name in ("", "-"):
        return FileKind.STANDARD
    if name.startswith("|"):
        return FileKind.PIPE
    _reject_odd_names(name, "written", "a command to write to starts with '|'")
    if _OFFSET.fullmatch(name):
        raise OptionError(f"'{name}' cannot be written: it names an offset into a file")
    return FileKind.FILE


def _reject_zero_byte(name: str) -> None:
    """Raise OptionError if a name contains a zero byte, which system calls and the shell reject."""
    if "\0" in name:
        raise OptionError(f"{name[:60]!r} holds a zero byte")


def _reject_odd_names(name: str, verb: str, hint: str) -> None:
    """Raise OptionError for a table specifier, or a file name with outer white space or '|'.

    The error says that the name cannot be `verb` ("read" or "written"), and `hint` for '|'.
    """
    if name != name.strip():
        raise OptionError(f"'{name}' cannot be {verb}: it begins or ends with white space")
    if name[0] in "as" and is_table(name):
        raise OptionError(f"'{name}' cannot be {verb}: expected a file, found a table specifier")
    if "|" in name:
        raise OptionError(f"'{name}' cannot be {verb}: {hint}")


def is_table(name: str) -> bool:
    """Whether a command-line word is a table specifier, not a file or pipe."""
    for parse in (parse_rspecifier, parse_wspecifier):
        with contextlib.suppress(OptionError):
            parse(name)
            return True
    return False


def split_offset(name: str) -> tuple[str, int]:
    """Split 'file:123' into ('file', 123); the offset is 0 if the name has none."""
    if (match := _OFFSET.fullmatch(name)) is None:
        return name, 0
    if (offset := parse_int(match[2], 0, _MAX_OFFSET)) is None:
        raise OptionError(f"'{name[:200]}' names an offset that no file has")
    return match[1], offset


# -- reading


@contextlib.contextmanager
def open_input(rxfilename: str, header: bool = True) -> Iterator[Reader]:
    r"""Open a file, 'file:offset', '-' or 'command |' and yield its Reader.

    With `header` a leading "\0B" is consumed and sets the reader's `binary`. DataError if the input
    cannot be opened, or if a command whose output was read to the end fails.
    """
    if (handed := handover.find(rxfilename)) is not None:
        reader = handed.reader(rxfilename)
        if header:
            reader.read_header()
        yield reader
        return
    kind = classify_input(rxfilename)
    opener = {FileKind.STANDARD: _open_stdin, FileKind.PIPE: _open_pipe_in}.get(kind, _open_file)
    with opener(rxfilename) as reader:
        if header:
            reader.read_header()
        yield reader


_read_stdin: object = None
"""The sys.stdin that an input has read, and whose following bytes may be in that input's buffer."""


@contextlib.contextmanager
def _open_stdin(rxfilename: str) -> Iterator[Reader]:
    global _read_stdin
    if _read_stdin is sys.stdin:
        raise OptionError("standard input ('-') was given for more than one input")
    _read_stdin = sys.stdin
    # Read without sys.stdin.buffer: a thread waiting in it would hold its lock, and then Python
    # aborts at the end of the program.
    file = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
    if isinstance(file, io.FileIO):
        file = NamedFile(0, "rb", "standard input")
    yield Reader(cast(BinaryIO, file), "standard input")


@contextlib.contextmanager
def _open_file(rxfilename: str) -> Iterator[Reader]:
    path, offset = split_offset(rxfilename)
    try:
        file = NamedFile(path)
    except MISTAKES as error:
        raise DataError(f"cannot open '{path}' for reading: {error.strerror}") from None
    try:
        reader = Reader(cast(BinaryIO, file), path)
        if offset:
            reader.seek(offset)
        yield reader
    finally:
        with contextlib.suppress(OSError):  # nothing is lost
            file.close()


def _started(command: str, stream: str, bufsize: int = -1) -> Popen[bytes]:
    """Start the shell command of a specifier with a pipe as its `stream` ("stdin" or "stdout").

    DataError if NO_COMMANDS is set.
    """
    import subprocess  # takes 5 ms

    if commands_are_refused():
        raise DataError(f"'{command[:200]}' is a command, and --no-commands refuses commands")
    streams: dict[str, int] = {stream: subprocess.PIPE}
    return subprocess.Popen(command, bufsize, shell=True, **streams)  # type: ignore[call-overload]


@contextlib.contextmanager
def _open_pipe_in(rxfilename: str) -> Iterator[Reader]:
    command = rxfilename[:-1].strip()
    process = _started(command, "stdout", bufsize=0)
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


MAX_CONFIG = 1 << 24
"""The most bytes of a text that a user writes: of a config, an options file or an xconfig."""


def read_text(rxfilename: str, most: int = MAX_TEXT) -> str:
    """Read a whole text file, pipe or standard input.

    DataError for a zero byte, or for more than `most` bytes.
    """
    with open_input(rxfilename, header=False) as reader:
        return reader.read_rest(most)


def read_text_lines(rxfilename: str, most: int = MAX_TEXT) -> list[str]:
    """The lines of a text file or pipe, without line ends; errors are those of `read_text`."""
    *lines, last = read_text(rxfilename, most).split("\n")
    return [line.removesuffix("\r") for line in ([*lines, last] if last else lines)]


_PART = 1 << 20


def read_file(path: str | Path, most: int = MAX_TEXT) -> bytes:
    """The bytes of a file by its plain path; DataError if unreadable or over `most` bytes."""
    data = bytearray()
    with failures_named(path, "read"), open(path, "rb") as file:
        # By parts, because Python allocates all bytes that are asked for.
        while len(data) <= most and (part := file.read(_PART)):
            data += part
    if len(data) > most:
        raise DataError(f"{path}: expected at most {most} bytes, found more")
    return bytes(data)


def number_in(rxfilename: str) -> int:
    """The number above 0 on the first line of a file such as num_jobs; DataError for others."""
    text = next(iter(read_text_lines(rxfilename)), "")
    if (number := parse_int(text, 1)) is None:
        found = quoted(text) or "nothing"
        raise DataError(f"{rxfilename}: expected a number above 0, found {found}")
    return number


# -- writing


@contextlib.contextmanager
def open_output(wxfilename: str, binary: bool = True, header: bool = True) -> Iterator[Writer]:
    r"""Open a file, '-' or '| command' and yield its Writer.

    With `header` and `binary` the output begins with "\0B". A file is replaced if the block ends
    without an exception. DataError if the output cannot be written, or if a command fails.
    """
    if (handed := handover.sink(wxfilename)) is not None:
        with handover.Collected(handed) as file:
            writer = Writer(file, binary, wxfilename)
            if header:
                writer.write_header()
            yield writer
        return
    kind = classify_output(wxfilename)
    opener = {FileKind.STANDARD: _open_stdout, FileKind.PIPE: _open_pipe_out}.get(kind, _write_file)
    with opener(wxfilename) as (file, name):
        writer = Writer(file, binary, name)
        if header:
            writer.write_header()
        yield writer


@contextlib.contextmanager
def _open_stdout(wxfilename: str) -> Iterator[tuple[BinaryIO, str]]:
    sys.stdout.flush()
    with failures_named("standard output", "write", has_other_files=True):
        yield sys.stdout.buffer, "standard output"
        sys.stdout.buffer.flush()


@contextlib.contextmanager
def _open_pipe_out(wxfilename: str) -> Iterator[tuple[BinaryIO, str]]:
    command = wxfilename[1:].strip()
    sys.stdout.flush()
    process = _started(command, "stdin")
    assert process.stdin is not None
    when = ""
    try:
        yield cast(BinaryIO, process.stdin), f"pipe '{wxfilename}'"
        process.stdin.close()
    except BrokenPipeError:
        when = " before all was written"
    except BaseException:
        process.terminate()
        raise
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        status = process.wait()
    # Kaldi only warns: gzip on a full disk takes all data and then loses them.
    if status != 0 or when:
        raise DataError(f"command '{command}' ended with status {status}{when}")


def write_text(path: object, text: str) -> None:
    """Write a text file, which appears whole or not at all."""
    with whole_file(str(path)) as file:
        file.write(text.encode("utf-8", "surrogateescape"))


def copy_contents(source: object, target: object) -> None:
    """Copy a file of any bytes and size to `target`, which appears whole or not at all."""
    with failures_named(source, "read"):
        contents = NamedFile(str(source))
    with contents, whole_file(str(target)) as file:
        while part := contents.read(_PART):
            file.write(part)


@contextlib.contextmanager
def _write_file(path: str) -> Iterator[tuple[BinaryIO, str]]:
    with whole_file(path) as file:
        yield file, path


def prove_output(wxfilename: str) -> None:
    """Raise DataError if a file cannot be written, before a program spends time on its contents."""
    if handover.sink(wxfilename) is None and classify_output(wxfilename) is FileKind.FILE:
        prove_writable(wxfilename)
