"""Log lines as Kaldi's programs print them, on standard error.

`LOG (nnet3-train[0.1.0]:PrintTotalStats():nnet-training.cc:72) message`: scripts look for the first
word, for Kaldi's function and file (`log_places`) and for parts of the message; the line is ours.
"""

from __future__ import annotations

import contextlib
import re
import sys

from nnet3tools import __version__

__all__ = [
    "clear_status",
    "error_line",
    "get_verbose",
    "log",
    "set_program",
    "set_verbose",
    "show_status",
    "skipped",
    "vlog",
    "warning",
    "write",
]

_CONTROL = re.compile("[\\0-\\x08\\x0b-\\x1f\\x7f-\\x9f]")  # but for tab and newline
_LONGEST_ERROR = 400
_program = ""
_verbose = 0
_has_status = False


def set_program(name: str) -> None:
    """The program's name for all lines that follow."""
    global _program
    _program = name


def set_verbose(level: int) -> None:
    """Lines of `vlog` up to this level are shown."""
    global _verbose
    _verbose = level


def get_verbose() -> int:
    """The level that `set_verbose` was last given; 0 at first."""
    return _verbose


def log(message: str) -> None:
    """One line of information."""
    _emit("LOG", message)


def warning(message: str) -> None:
    """Something odd that does not stop the program."""
    _emit("WARNING", message)


def vlog(level: int, message: str) -> None:
    """A line that shows only from a level of --verbose on."""
    if level <= _verbose:
        _emit(f"VLOG[{level}]", message)


def error_line(message: str) -> None:
    """The one line a failing program ends with."""
    write(f"ERROR ({_who()}) {_one_line(message)}")


def skipped(error: Exception) -> None:
    """An ERROR line about one utterance or example that the program goes on without."""
    error_line(f"{error} (skipped)")


def write(text: str) -> None:
    """Text and a newline on standard error, dropped if they cannot be written.

    Control characters, which names and keys may hold, are spelt out.
    """
    line = _CONTROL.sub(lambda found: repr(found[0])[1:-1], text) + "\n"
    clear_status()
    _put(line)


def show_status(text: str) -> None:
    """Show a line at the terminal that the next line of the log, or status, takes the place of.

    The cursor stays at its beginning, so that lines of programs in pipes start there, too.
    """
    global _has_status
    clear_status()
    _put(f"{text}\r")
    _has_status = True


def clear_status() -> None:
    """Take the status line away, if there is one."""
    global _has_status
    if _has_status:
        _put("\r\033[K")
        _has_status = False


def _put(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _emit(kind: str, message: str) -> None:
    from nnet3tools.io.log_places import place

    frame = sys._getframe(2)
    where = place(frame.f_code.co_filename, frame.f_code.co_name, _program)
    write(f"{kind} ({_who()}:{where}:{frame.f_lineno}) {message}")


def _who() -> str:
    return f"{_program}[{__version__}]"


def _one_line(message: str) -> str:
    """At most 400 characters on one line: the place at the beginning, and the end."""
    text = " ".join(message.splitlines())
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= _LONGEST_ERROR else f"{text[:345]} ... {text[-50:]}"
