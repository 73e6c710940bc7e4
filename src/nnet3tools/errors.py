"""Two families of errors: a user's mistakes (`UserError`) and our bugs (`ProgramError`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Nnet3Error(Exception):
    """Base class of all errors that this package raises deliberately."""


class UserError(Nnet3Error):
    """A mistake that a user can correct; one line says where, what was found and expected."""


class OptionError(UserError):
    """A wrong command line; the program prints its usage."""


class DataError(UserError):
    """A file, table or stream that is missing, truncated, malformed or inconsistent."""


class NotFiniteError(DataError):
    """NaN or infinity in one utterance or example, which the program skips and reports."""


class DivergedError(UserError):
    """NaN or infinity in a model during training."""


class EmptyError(DataError):
    """No input was read or no result produced; the program ends with status 1."""


class RequestError(UserError):
    """A computation request that cannot be compiled for the given network."""


def install_command(extra: str) -> str:
    """The shell command that installs an optional extra of this package, for error messages.

    In a checkout it is the script that makes the checkout's environment.
    """
    from pathlib import Path

    script = Path(__file__).parents[2] / "bin" / "setup-env"
    return f"{script} {extra}" if script.is_file() else f"pip install 'nnet3tools[{extra}]'"


_LONGEST_QUOTE = 200


def quoted(text: str, longest: int = 24) -> str:
    """Quote text from a file for an error message, cut to `longest` characters; "" stays empty.

    Text that is not printable is replaced by the words "binary bytes".
    """
    head = text[: longest + 1].rstrip("\ufffd")  # an incomplete character at the cut
    if "\ufffd" in head or any(not (char.isprintable() or char.isspace()) for char in head):
        return "binary bytes"
    return repr(text if len(text) <= longest else text[: longest - 4] + "...") if text else ""


class ConfigError(UserError):
    """A wrong line in a network config or in edits.

    `file` and `line_number` (from 1) say where. `text` is the whole line, of which the message
    quotes the beginning.
    """

    def __init__(self, message: str, file: str = "", line_number: int = 0, text: str = "") -> None:
        self.message, self.file, self.line_number, self.text = message, file, line_number, text
        where = f"{file}:{line_number}: " if file and line_number else f"{file}: " if file else ""
        shown = text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."
        line = f" in line '{shown}'" if text else ""
        if quoted(shown) == "binary bytes":
            message, line = "expected lines of text, found binary bytes", ""
        super().__init__(f"{where}{message}{line}")


_SHOWN = 60
"""Characters of a text that an error shows to either side of its mark."""


class TextError(UserError):
    """Text from a user that does not follow its grammar, or names things that do not exist.

    `what` names the kind of text, such as "formula"; `position` counts characters from 0. The
    message tells the column, and shows the text with ` >>> ` before that position.
    """

    def __init__(self, message: str, text: str, position: int, what: str) -> None:
        self.message, self.text, self.position, self.what = message, text, position, what
        self.line = text.count("\n", 0, position) + 1
        self.column = position - (text.rfind("\n", 0, position) + 1) + 1
        before, after = text[:position].replace("\n", " "), text[position:].replace("\n", " ")
        before = before if len(before) <= _SHOWN else f"...{before[-_SHOWN:]}"
        after = after if len(after) <= _SHOWN else f"{after[:_SHOWN]}..."
        shown = f"{before} >>> {after}"
        shown = "binary bytes" if quoted(shown, len(shown)) == "binary bytes" else shown
        line = f"line {self.line}, " if "\n" in text.strip() else ""
        super().__init__(f"{message} at {line}column {self.column} of {what}: {shown}")


class ProgramError(Nnet3Error):
    """A bug of this package: an invalid computation, or a call that breaks its contract."""


MAX_FRAMES = 1_000_000
"""Largest value of an option in frames: nearly three hours at 100 frames a second."""

MAX_STREAM_FRAMES = 10_000
"""Most frames of a stream that are computed at once: streams are computed in whole chunks."""


def check_num_frames(option: str, num_frames: int, most: int = MAX_FRAMES) -> None:
    """Raise OptionError if the value `num_frames` of the option exceeds `most`.

    A larger number would exhaust memory. `option` is the option's name, without dashes.
    """
    if num_frames > most:
        raise OptionError(f"--{option}={num_frames} is too large: at most {most} frames")


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Context manager: prefix each UserError of its block with `name`, a file, table or key."""
    try:
        yield
    except UserError as error:
        kind = NotFiniteError if isinstance(error, NotFiniteError) else DataError
        raise kind(f"{name}: {error}") from None


@contextmanager
def failures_named(path: object, verb: str, has_other_files: bool = False) -> Iterator[None]:
    """Context manager that raises a DataError, such as "cannot write 'a': ...", for an OSError.

    The verb "open" means opening for writing. BrokenPipeErrors are raised unchanged; with
    `has_other_files` also errors that name a file, because it may be another one.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if has_other_files and error.filename is not None:
            raise
        purpose = " for writing" if verb == "open" else ""
        raise DataError(f"cannot {verb} '{path}'{purpose}: {error.strerror or error}") from None
