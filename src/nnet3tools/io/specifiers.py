"""Parsing of rspecifiers `[options,]ark:rxfilename` and wspecifiers `[options,]scp:wxfilename`."""

import enum
from typing import Any

from nnet3tools.errors import OptionError
from nnet3tools.fast_dataclasses import dataclass, replace


class TableKind(enum.Enum):
    """Where the objects of a table are: in an archive, in the files of a script file, or both."""

    ARCHIVE = "ark"
    SCRIPT = "scp"
    BOTH = "ark,scp"


@dataclass(frozen=True)
class Rspecifier:
    """A parsed rspecifier: the table to read.

    Options: `background` (bg), a thread reads ahead; `sorted` (s), keys are sorted; `once` (o),
    each key is requested once; `called_sorted` (cs), keys are requested in order; `permissive` (p),
    an unreadable object counts as missing and ends an archive.
    """

    text: str
    kind: TableKind
    rxfilename: str
    once: bool = False
    sorted: bool = False
    called_sorted: bool = False
    permissive: bool = False
    background: bool = False


@dataclass(frozen=True)
class Wspecifier:
    """A table to write: wxfilenames `archive` and `script`, "" if the table has no such file.

    Options: `binary` (false: t), `flush` (f) after each object, `permissive` (p): skip unknown
    keys.
    """

    text: str
    kind: TableKind
    archive: str
    script: str
    binary: bool = True
    flush: bool = False
    permissive: bool = False


_READ_OPTIONS: dict[str, tuple[str, bool] | None] = {
    "b": None,
    "t": None,
    "o": ("once", True),
    "no": ("once", False),
    "p": ("permissive", True),
    "np": ("permissive", False),
    "s": ("sorted", True),
    "ns": ("sorted", False),
    "cs": ("called_sorted", True),
    "ncs": ("called_sorted", False),
    "bg": ("background", True),
}

_WRITE_OPTIONS: dict[str, tuple[str, bool] | None] = {
    "b": ("binary", True),
    "t": ("binary", False),
    "f": ("flush", True),
    "nf": ("flush", False),
    "p": ("permissive", True),
}


def parse_rspecifier(text: str) -> Rspecifier:
    """Parse a text such as ark:file or scp,p:file; OptionError if the form is wrong."""
    what = "rspecifier"
    kinds, changes, name = _parse(text, what, _READ_OPTIONS)
    if kinds not in (["ark"], ["scp"]):
        raise _error(text, what, "expected ark: or scp:")
    return replace(Rspecifier(text, TableKind(kinds[0]), name), **changes)


def parse_wspecifier(text: str) -> Wspecifier:
    """Parse a text such as ark,t:file or ark,scp:archive,script; OptionError if it is wrong."""
    what = "wspecifier"
    kinds, changes, name = _parse(text, what, _WRITE_OPTIONS)
    if kinds == ["ark"]:
        specifier = Wspecifier(text, TableKind.ARCHIVE, name, "")
    elif kinds == ["scp"]:
        specifier = Wspecifier(text, TableKind.SCRIPT, "", name)
    elif kinds == ["ark", "scp"]:
        archive, comma, script = name.partition(",")
        if not comma:
            raise _error(text, what, "expected two files, ark,scp:archive,script")
        specifier = Wspecifier(text, TableKind.BOTH, archive, script)
    else:
        raise _error(text, what, "expected ark:, scp: or ark,scp:")
    return replace(specifier, **changes)


def _parse(
    text: str, what: str, options: dict[str, tuple[str, bool] | None]
) -> tuple[list[str], dict[str, Any], str]:
    """Split a specifier: (words such as ark and scp, attributes set by options, text after ':').

    `options`: attribute and value for each option, None to ignore it. Errors name the specifier
    `what`.
    """
    before, colon, name = text.partition(":")
    if not colon or text != text.rstrip():
        raise _error(text, what, "expected a form such as ark:file or scp,p:file")
    kinds: list[str] = []
    changes: dict[str, Any] = {}
    for word in before.replace(" ", ",").split(","):
        if word in ("ark", "scp"):
            kinds.append(word)
        elif word not in options:
            raise _error(text, what, f"'{word}' is no option of a table")
        elif (change := options[word]) is not None:
            changes[change[0]] = change[1]
    return kinds, changes, name


def _error(text: str, what: str, expected: str) -> OptionError:
    return OptionError(f"invalid {what} '{text}': {expected}")
