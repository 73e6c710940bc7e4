"""Reading text with a grammar: the error of text that does not follow it, and limits."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import pyparsing as pp

from nnet3tools.errors import TextError

MAX_LEVELS = 100
"""Levels of parentheses, and of definitions that use later ones."""

_FRAMES = 40_000
"""Python calls in one another: up to 150 for a level when text is read; more in definitions."""

_FOUND = re.compile(r"\w{1,20}|<\S{1,20}|\S|$")


def read_text(grammar: pp.ParserElement, text: str, what: str) -> Any:
    """Parse a whole text with a grammar and return the first result; TextError if it fails.

    `what` names the text in the error: "formula", "--minibatch-size".
    """
    try:
        with deep_recursion():
            return grammar.parse_with_tabs().parse_string(text, parse_all=True)[0]
    except pp.ParseBaseException as error:
        start = error.loc + len(text[error.loc :]) - len(text[error.loc :].lstrip())
        message = error.msg[:1].lower() + error.msg[1:]
        if ", found" not in message:
            found = _FOUND.match(text, start)
            message += f", found {repr(found[0]) if found and found[0] else 'the end'}"
        raise TextError(message, text, start, what) from None


def fail(text: str, position: int, message: str) -> NoReturn:
    """Make the parser report `message` at `position`; parse actions call this for wrong values."""
    raise pp.ParseFatalException(text, position, message)


def word(pattern: str, expected: str) -> pp.ParserElement:
    """A grammar for a token that matches the regular expression; errors call it `expected`."""
    return pp.Regex(pattern).set_name(expected)


def check_levels(text: str, what: str, brackets: str = "()") -> None:
    """Raise TextError, naming `what`, where brackets nest more than MAX_LEVELS deep."""
    opening, closing = brackets[::2], brackets[1::2]
    levels = 0
    for match in re.finditer(f"[{re.escape(brackets)}]", text):
        levels += (match[0] in opening) - (match[0] in closing)
        if levels > MAX_LEVELS:
            message = f"expected at most {MAX_LEVELS} levels of parentheses, found more"
            raise TextError(message, text, match.start(), what)


@contextlib.contextmanager
def deep_recursion() -> Iterator[None]:
    """Context manager: raise Python's recursion limit as far as MAX_LEVELS of nesting needs."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
