"""The operators of descriptors and their arguments, for the grammar and for the fast reader.

`grammars.descriptor` reads the descriptors of xconfig files; `nnet.descriptor_parser` reads those
of models and config files at every start of a program, and does not need pyparsing.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from nnet3tools.errors import TextError
from nnet3tools.fast_dataclasses import dataclass


@dataclass(frozen=True)
class Expression:
    """A syntax tree of a descriptor: an operator with arguments, or a name (`operator` "").

    `children` are the arguments that are descriptors, `numbers` the integers: Offset (t, x), Round
    (modulus), ReplaceIndex (value), Const (dim). `name` is also the variable of ReplaceIndex,
    `alpha` the number of Scale and Const. `position` is the place in the text, from 0.
    """

    operator: str
    children: tuple[Expression, ...] = ()
    name: str = ""
    numbers: tuple[int, ...] = ()
    alpha: float = 1.0
    position: int = 0

    def error(self, message: str) -> TextError:
        """Make a TextError at this expression; the caller adds the text of the descriptor."""
        return TextError(message, "", self.position, "descriptor")


class Argument(enum.Enum):
    """Kinds of arguments of descriptor operators; the values name them in error messages."""

    EXPRESSION = "an expression"
    INTEGER = "an integer"
    POSITIVE = "a positive integer"
    NUMBER = "a finite number"
    VARIABLE = "t or x"


@dataclass(frozen=True)
class Signature:
    """The kinds of arguments that an operator takes; the last `num_optional` may be left out.

    With `repeated`, the only argument may come any number of times, but at least once. With
    `nests`, f(a, f(b, c)) is the same as f(a, b, c).
    """

    arguments: tuple[Argument, ...]
    num_optional: int = 0
    repeated: bool = False
    nests: bool = False

    def at(self, place: int) -> Argument | None:
        """The kind of the argument number `place`, from 0; None if the operator takes fewer."""
        if self.repeated:
            return self.arguments[0]
        return self.arguments[place] if place < len(self.arguments) else None

    @property
    def num_needed(self) -> int:
        """The number of arguments that the operator requires."""
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
    """Make the expression operator(values...); values are expressions, numbers or names."""
    return Expression(
        operator,
        children=tuple(value for value in values if isinstance(value, Expression)),
        name="".join(value for value in values if isinstance(value, str)),
        numbers=tuple(value for value in values if isinstance(value, int)),
        alpha=next((value for value in values if isinstance(value, float)), 1.0),
        position=position,
    )
