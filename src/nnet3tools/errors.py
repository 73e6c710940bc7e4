"""The two families of errors: what a user can get wrong, and what only we can get wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "ConfigError",
    "DataError",
    "DivergedError",
    "EmptyError",
    "Nnet3Error",
    "NotFiniteError",
    "OptionError",
    "ProgramError",
    "RequestError",
    "TextError",
    "UserError",
    "check_num_frames",
    "install_command",
    "naming",
    "quoted",
]


class Nnet3Error(Exception):
    """Root of every error that this package raises on purpose."""


class UserError(Nnet3Error):
    """Something a user can mend: says where, what was found and what was expected, in one line."""


class OptionError(UserError):
    """A wrong command line: the program prints its usage."""


class DataError(UserError):
    """A file, table or stream that is missing, truncated, garbled or does not fit."""


class NotFiniteError(DataError):
    """Data with NaN or infinity: one utterance or example, which programs skip and report."""


class DivergedError(UserError):
    """NaN or infinity came up while a model was trained."""


class EmptyError(DataError):
    """Nothing was read, or nothing came of it: the program ends with status 1, as Kaldi's do."""


class RequestError(UserError):
    """A computation that was asked for and cannot be compiled for this network."""


def install_command(extra: str) -> str:
    """The command that installs an optional part of this package, for errors that lack it.

    In a checkout it is the script that makes the checkout's environment.
    """
    from pathlib import Path

    script = Path(__file__).parents[2] / "bin" / "setup-env"
    return f"{script} {extra}" if script.is_file() else f"pip install 'nnet3tools[{extra}]'"


_LONGEST_QUOTE = 200


def quoted(text: str, longest: int = 24) -> str:
    """What was found, for an error: in quotes, cut if long; "" stays empty.

    Bytes that are no text are called so, and not shown.
    """
    head = text[: longest + 1].rstrip("\ufffd")  # a character cut in two
    if "\ufffd" in head or any(not (char.isprintable() or char.isspace()) for char in head):
        return "binary bytes"
    return repr(text if len(text) <= longest else text[: longest - 4] + "...") if text else ""


class ConfigError(UserError):
    """A line of a network config (or of edits) that cannot be obeyed.

    `file` and `line_number` (from 1) say where; `text` is the whole line, whose beginning the
    message quotes.
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
    """A bug of ours: a program (list of commands) or a call that breaks its own rules."""


MAX_FRAMES = 1_000_000
"""Nearly three hours at the usual rate: nobody means more in one piece that has to be padded."""


def check_num_frames(option: str, num_frames: int) -> None:
    """OptionError for a number of frames that would only exhaust the memory."""
    if num_frames > MAX_FRAMES:
        raise OptionError(f"--{option}={num_frames} is too large: at most {MAX_FRAMES} frames")


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Users' errors within begin with a name: of the file, table or key that they are about."""
    try:
        yield
    except UserError as error:
        kind = NotFiniteError if isinstance(error, NotFiniteError) else DataError
        raise kind(f"{name}: {error}") from None
