"""Log lines on standard error, in the form of Kaldi's programs.

`LOG (nnet3-train[0.1.0]:PrintTotalStats():nnet-training.cc:72) message`: scripts look for the first
word, Kaldi's function and file (`log_places`) and parts of the message; the line is ours.
"""

import contextlib
import re
import sys

from nnet3tools import __version__

_CONTROL = re.compile("[\\0-\\x08\\x0b-\\x1f\\x7f-\\x9f]")  # without tab and newline
_LONGEST_ERROR = 400
_program = ""
_verbose = 0
_has_status = False
_uses_logging = False
_LEVELS = {"LOG": 20, "WARNING": 30}  # logging's; other kinds are DEBUG, 10


def set_program(name: str) -> None:
    """Set the program name in later log lines, which then go to standard error."""
    global _program, _uses_logging
    _program, _uses_logging = name, False


def program() -> str:
    """The name that `set_program` set; "" at first."""
    return _program


def use_logging() -> None:
    """Send later messages to Python's logger "nnet3tools", unless `set_program` has been called."""
    global _uses_logging
    _uses_logging = not _program


def set_verbose(level: int) -> None:
    """Set the highest level of `vlog` lines that are shown."""
    global _verbose
    _verbose = level


def get_verbose() -> int:
    """The level set by `set_verbose`; 0 at first."""
    return _verbose


def log(message: str) -> None:
    """Print an informational line (LOG) to standard error."""
    _emit("LOG", message)


def warning(message: str) -> None:
    """Print a WARNING line about an oddity that does not stop the program."""
    _emit("WARNING", message)


def vlog(level: int, message: str) -> None:
    """Print a line if --verbose is at least `level`."""
    if level <= _verbose:
        _emit(f"VLOG[{level}]", message)


def error_line(message: str) -> None:
    """Print the final ERROR line of a program that fails."""
    write(f"ERROR ({_who()}) {_one_line(message)}")


def skipped(error: Exception) -> None:
    """Print an ERROR line about an utterance or example that the program skips."""
    if _uses_logging:
        _emit("WARNING", f"{error} (skipped)")
    else:
        error_line(f"{error} (skipped)")


def write(text: str) -> None:
    """Write a line to standard error; failure to write is ignored.

    Control characters, which keys may contain, are escaped.
    """
    line = _CONTROL.sub(lambda found: repr(found[0])[1:-1], text) + "\n"
    clear_status()
    _put(line)


def show_status(text: str) -> None:
    """Show a line at the terminal that the next log or status line overwrites.

    The cursor stays at the line's start, where other programs of a pipeline then print.
    """
    global _has_status
    clear_status()
    _put(f"{text}\r")
    _has_status = True


def clear_status() -> None:
    """Erase the status line, if one is shown."""
    global _has_status
    if _has_status:
        _put("\r\033[K")
        _has_status = False


def _put(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _emit(kind: str, message: str) -> None:
    if _uses_logging:
        import logging

        logging.getLogger("nnet3tools").log(_LEVELS.get(kind, 10), message)
        return
    from nnet3tools.io.log_places import place

    frame = sys._getframe(2)
    where = place(frame.f_code.co_filename, frame.f_code.co_name, _program)
    write(f"{kind} ({_who()}:{where}:{frame.f_lineno}) {message}")


def _who() -> str:
    return f"{_program}[{__version__}]"


def _one_line(message: str) -> str:
    """Join the lines of a message and cut its middle if it has more than 400 characters."""
    text = " ".join(message.splitlines())
    text = text if text.isprintable() else repr(text)[1:-1]
    return text if len(text) <= _LONGEST_ERROR else f"{text[:345]} ... {text[-50:]}"
