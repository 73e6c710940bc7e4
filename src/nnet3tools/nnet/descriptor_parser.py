"""The fast reader of descriptors in models and config files, with a stack instead of recursion.

Kaldi prints a sum of n terms as n levels, Sum(a, Sum(b, ...)); a reader that limits these levels
cannot read back a long sum. Programs read descriptors at every start, so this reader does without
pyparsing (0.06 ms a descriptor instead of 0.7). Tests compare it with grammars/descriptor.py.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from nnet3tools.errors import TextError
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.grammars.descriptor_syntax import (
    OPERATORS,
    Argument,
    Expression,
    Signature,
    operation,
)
from nnet3tools.nnet.config import is_valid_name, parse_finite
from nnet3tools.number_text import parse_int

MAX_DEPTH = 100
"""Limit on nested operators; Sum(a, Sum(b, c)) counts as one level."""

_TOKEN = re.compile(r"[(),]|[^\s(),]+|[^\S \t\r\n]")
"""A parenthesis, comma or word; or a Unicode blank, which Kaldi does not skip."""


@dataclass
class _Level:
    """An operator in the text, at `position`, whose arguments are being read.

    `depth` is the number of nested operators in its deepest argument so far; `depth_before` leaves
    out the last argument.
    """

    name: str
    signature: Signature
    position: int
    arguments: list[Any] = field(default_factory=list)
    depth: int = 0
    depth_before: int = 0

    @property
    def next_argument(self) -> Argument | None:
        """The kind of the operator's next argument; None if it takes no more."""
        return self.signature.at(len(self.arguments))


@dataclass
class _Nested:
    """A finished Append, Sum or Failover that may become part of the same operator around it.

    `backwards` are its arguments, last first; the outer operator's earlier ones are appended.
    """

    level: _Level
    backwards: list[Any]


def _positive(text: str) -> int | None:
    value = parse_int(text)
    return value if value is not None and value > 0 else None


_VALUES: dict[Argument, Callable[[str], int | float | str | None]] = {
    Argument.INTEGER: parse_int,
    Argument.POSITIVE: _positive,
    Argument.NUMBER: parse_finite,
    Argument.VARIABLE: {"t": "t", "x": "x"}.get,
}
"""For each kind of argument, the value of a word, or None if the word is not of this kind."""

_NODE = "a node name or an operator such as Offset"


class _Parser:
    def __init__(self, text: str, flat: bool) -> None:
        self._text, self._flat = text, flat
        self._tokens = _TOKEN.finditer(text)
        self._levels: list[_Level] = []
        self._next()

    def _next(self) -> None:
        match = next(self._tokens, None)
        self._token, self._at = (match[0], match.start()) if match else ("", len(self._text))

    def _error(self, expected: str) -> TextError:
        found = f"'{self._token[:20]}'" if self._token else "the end"
        return self._problem(f"expected {expected}, found {found}")

    def _problem(self, message: str) -> TextError:
        return TextError(message, self._text, self._at, "descriptor")

    def parse(self) -> Expression:
        """Parse the whole text to an Expression; TextError if it is malformed."""
        while True:
            value, depth = self._argument()
            while value is not None:
                if not self._levels:
                    if self._token:
                        raise self._error("end of text")
                    return self._as_expression(value)
                value, depth = self._add_argument(value, depth)

    def _argument(self) -> tuple[Any, int]:
        """Read a name or number; return (value, 0), as no operators are nested in the value.

        For an operator, read only its name and bracket, add a _Level for it; return (None, 0).
        """
        kind = self._levels[-1].next_argument if self._levels else Argument.EXPRESSION
        assert kind is not None
        word, position = self._token, self._at
        of_nodes = kind is Argument.EXPRESSION
        if of_nodes and word in OPERATORS:
            self._open(word, position)
            return None, 0
        expected = _NODE if of_nodes else kind.value
        if word in ("", "(", ")", ","):
            raise self._error(expected)
        value: Any = None
        if not of_nodes:
            value = _VALUES[kind](word)
        elif is_valid_name(word):
            value = Expression("", name=word, position=position)
        if value is None:
            raise self._error(expected)
        self._next()
        return value, 0

    def _open(self, name: str, position: int) -> None:
        self._next()
        if self._token != "(":
            raise self._error("'('")
        self._next()
        self._levels.append(_Level(name, OPERATORS[name], position))

    def _add_argument(self, value: Any, depth: int) -> tuple[Any, int]:
        """Add an argument, with `depth` nested operators, to the innermost operator.

        If the operator is now complete, return it and its own depth, else (None, 0).
        """
        level = self._levels[-1]
        level.arguments.append(value)
        level.depth_before, level.depth = level.depth, max(level.depth, depth)
        if self._token == "," and level.next_argument is not None:
            level.arguments[-1] = self._as_expression(value)
            self._next()
            return None, 0
        if len(level.arguments) < level.signature.num_needed:
            raise self._error("','")
        if self._token != ")":
            raise self._error("')'")
        self._next()
        return self._close(self._levels.pop())

    def _close(self, level: _Level) -> tuple[Any, int]:
        last, depth = level.arguments[-1], level.depth + 1
        if not (level.signature.nests and self._flat):
            level.arguments[-1] = self._as_expression(last)
            value: Any = operation(level.name, level.arguments, level.position)
        elif isinstance(last, _Nested) and last.level.name == level.name:
            last.backwards.extend(reversed(level.arguments[:-1]))
            last.level.position = level.position
            depth = max(level.depth, level.depth_before + 1)
            value = last
        else:
            level.arguments[-1] = self._as_expression(last)
            value = _Nested(level, level.arguments[::-1])
        if depth > MAX_DEPTH:
            raise self._problem(f"expected at most {MAX_DEPTH} levels of operators, found more")
        return value, depth

    def _as_expression(self, value: Any) -> Any:
        """The Expression of `value`, if that is an operator with its arguments; else `value`."""
        if not isinstance(value, _Nested):
            return value
        return Expression(
            value.level.name, tuple(reversed(value.backwards)), position=value.level.position
        )


@functools.lru_cache(maxsize=4096)
def parse_expression(text: str, flat: bool = True) -> Expression:
    """Parse the text of a descriptor; TextError with the column if it is malformed.

    The number of arguments is unlimited; operators nest up to MAX_DEPTH levels. With `flat`, an
    Append, Sum or Failover that is the last argument of the same operator becomes part of it.
    """
    return _Parser(text, flat).parse()
