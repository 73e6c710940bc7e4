"""What the text of descriptors is made of: expressions, their operators, dialects."""

from __future__ import annotations

import enum
import math
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
    flat: bool
    """Whether Append, Sum and Failover as the last argument of their like become part of it."""


NODES = Dialect("a node name", is_valid_name, _finite, flat=True)
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
    nests: bool = False
    """Whether (a, (b, c)) is the same as (a, b, c)."""

    def at(self, place: int) -> Argument | None:
        """What may stand at this place, from 0."""
        if self.repeated:
            return self.arguments[0]
        return self.arguments[place] if place < len(self.arguments) else None

    @property
    def num_needed(self) -> int:
        """Arguments that must be there."""
        return len(self.arguments) - self.num_optional


_EXPRESSION, _INTEGER = Argument.EXPRESSION, Argument.INTEGER

OPERATORS = {
    "Append": Signature((_EXPRESSION,), repeated=True, nests=True),
    "Sum": Signature((_EXPRESSION,), repeated=True, nests=True),
    "Switch": Signature((_EXPRESSION,), repeated=True),
    "Failover": Signature((_EXPRESSION, _EXPRESSION), nests=True),
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
