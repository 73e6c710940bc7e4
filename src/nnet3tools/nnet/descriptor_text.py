"""The text of descriptors to expressions: their operators, and a reader of plain text.

Plain is what Kaldi writes, and nearly everybody else: names, numbers, parentheses, commas and
blanks, with nothing wrong. It is read here, as loading pyparsing for the grammar takes a third of
the time of a program that copies a model. Whatever else there is, errors above all, is left to the
grammar (descriptor_grammar), which is made of the same `OPERATORS`.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nnet3tools.nnet.config import is_valid_name, parse_float, parse_int

__all__ = [
    "OPERATORS",
    "Argument",
    "Dialect",
    "Expression",
    "Signature",
    "operation",
    "read_plain",
]


@dataclass(frozen=True)
class Expression:
    """A node of the parsed text.

    `operator` is "" for a node name; `numbers` holds the integers of Offset (t, x), Round
    (modulus), ReplaceIndex (value) and Const (dim); `name` a node name or the variable of
    ReplaceIndex; `alpha` the float of Scale and Const; `position` where in the text it starts.
    """

    operator: str
    children: tuple[Expression, ...] = ()
    name: str = ""
    numbers: tuple[int, ...] = ()
    alpha: float = 1.0
    position: int = 0


def _positive(text: str) -> int | None:
    value = parse_int(text)
    return value if value is not None and value > 0 else None


def _finite(text: str) -> float | None:
    value = parse_float(text)
    return value if value is not None and math.isfinite(value) else None


@dataclass(frozen=True)
class Dialect:
    """In what the languages with these operators differ: their leaves and their numbers."""

    leaf: str
    """A leaf, as an error message calls it."""
    is_leaf: Callable[[str], bool]
    number: Callable[[str], float | None]
    """The float of Scale and Const that a text is, or None."""


NODES = Dialect("a node name", is_valid_name, _finite)
"""Descriptors of config files."""


class Argument(enum.Enum):
    """Kinds of arguments; the values are their names in error messages."""

    EXPRESSION = "an expression"
    INTEGER = "an integer"
    POSITIVE = "a positive integer"
    NUMBER = "a finite number"
    VARIABLE = "t or x"

    def parse(self, word: str, dialect: Dialect) -> int | float | str | None:
        """The number or variable that a word is; None if it is none of this kind."""
        if self is Argument.INTEGER:
            return parse_int(word)
        if self is Argument.POSITIVE:
            return _positive(word)
        if self is Argument.NUMBER:
            return dialect.number(word)
        return word if word in ("t", "x") else None


@dataclass(frozen=True)
class Signature:
    """The arguments of an operator; the last `num_optional` may be left out.

    With `repeated` the only one may come any number of times, but at least once.
    """

    arguments: tuple[Argument, ...]
    num_optional: int = 0
    repeated: bool = False


_EXPRESSION, _INTEGER = Argument.EXPRESSION, Argument.INTEGER

OPERATORS = {
    "Append": Signature((_EXPRESSION,), repeated=True),
    "Sum": Signature((_EXPRESSION,), repeated=True),
    "Switch": Signature((_EXPRESSION,), repeated=True),
    "Failover": Signature((_EXPRESSION, _EXPRESSION)),
    "IfDefined": Signature((_EXPRESSION,)),
    "Offset": Signature((_EXPRESSION, _INTEGER, _INTEGER), num_optional=1),
    "Round": Signature((_EXPRESSION, Argument.POSITIVE)),
    "ReplaceIndex": Signature((_EXPRESSION, Argument.VARIABLE, _INTEGER)),
    "Scale": Signature((Argument.NUMBER, _EXPRESSION)),
    "Const": Signature((Argument.NUMBER, Argument.POSITIVE)),
}


def operation(
    operator: str, values: Sequence[Expression | int | float | str], position: int
) -> Expression:
    """An operator applied to arguments, each where an Expression has its kind."""
    return Expression(
        operator,
        children=tuple(value for value in values if isinstance(value, Expression)),
        name="".join(value for value in values if isinstance(value, str)),
        numbers=tuple(value for value in values if isinstance(value, int)),
        alpha=next((value for value in values if isinstance(value, float)), 1.0),
        position=position,
    )


# -- plain text

_OTHER_SPACE = re.compile(r"[^\S ]")
_WORDS = re.compile(r"[^\s(),]+|[(),]")
_DEEPEST = 50
"""Levels of parentheses; the grammar decides about more, and what uses the expression recurses."""


def read_plain(text: str, dialect: Dialect = NODES) -> Expression | None:
    """The expression; None if the text is not plain or not right."""
    if _OTHER_SPACE.search(text):
        return None
    words = _Words([(found.group(), found.start()) for found in _WORDS.finditer(text)], dialect)
    try:
        expression = words.expression(_DEEPEST)
        words.expect("")
    except _NotPlainError:
        return None
    return expression


class _NotPlainError(Exception):
    """The grammar shall decide."""


class _Words:
    """The words of a text, taken from left to right."""

    def __init__(self, words: list[tuple[str, int]], dialect: Dialect) -> None:
        self._left, self._dialect = [*reversed(words)], dialect

    def _next(self) -> str:
        return self._left[-1][0] if self._left else ""

    def expect(self, word: str) -> None:
        """Take this word; "" is the end."""
        if self._next() != word:
            raise _NotPlainError
        if word:
            self._left.pop()

    def expression(self, levels: int) -> Expression:
        """Take a whole expression."""
        word = self._next()
        if not word or levels == 0:
            raise _NotPlainError
        position = self._left.pop()[1]
        if (signature := OPERATORS.get(word)) is not None:
            return operation(word, self._arguments(signature, levels - 1), position)
        if not self._dialect.is_leaf(word):
            raise _NotPlainError
        return Expression("", name=word, position=position)

    def _arguments(self, signature: Signature, levels: int) -> list[Expression | int | float | str]:
        self.expect("(")
        values = [self._argument(signature.arguments[0], levels)]
        while self._next() == ",":
            self._left.pop()
            place = 0 if signature.repeated else len(values)
            if place == len(signature.arguments):
                raise _NotPlainError
            values.append(self._argument(signature.arguments[place], levels))
        self.expect(")")
        if len(values) < len(signature.arguments) - signature.num_optional:
            raise _NotPlainError
        return values

    def _argument(self, kind: Argument, levels: int) -> Expression | int | float | str:
        if kind is Argument.EXPRESSION:
            return self.expression(levels)
        value = kind.parse(self._next(), self._dialect)
        if value is None:
            raise _NotPlainError
        self._left.pop()
        return value
