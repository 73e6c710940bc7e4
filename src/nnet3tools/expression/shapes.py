"""Shapes of nodes, and the error for operands that do not fit."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from nnet3tools.errors import UserError

Shape = tuple[int, ...]


class ExpressionError(UserError):
    """An expression that cannot be built, or a gradient that does not exist."""


def shape_text(shape: Shape) -> str:
    """A shape as text such as `(3 x 4)`."""
    return f"({' x '.join(str(n) for n in shape)})"


def broadcast(shapes: Iterable[Shape]) -> Shape | None:
    """The common broadcast shape, axes aligned at the end as in NumPy; None if there is none."""
    found: list[int] = []
    for shape in shapes:
        found = [1] * (len(shape) - len(found)) + found
        for i, n in enumerate(reversed(shape), start=1):
            if found[-i] == 1:
                found[-i] = n
            elif n not in (1, found[-i]):
                return None
    return tuple(found)


def normal_axis(axis: Any, shape: Shape, what: str) -> int:
    """`axis` as a number from 0; ExpressionError, which names `what`, if it does not exist."""
    try:
        number = operator.index(axis)
    except TypeError:
        raise ExpressionError(f"{what}: an axis is one integer, found {axis!r}") from None
    if isinstance(axis, bool) or not -len(shape) <= number < len(shape):
        raise ExpressionError(f"{what}: no axis {axis} in shape {shape_text(shape)}")
    return number % len(shape)


def whole_number(value: Any, what: str) -> int:
    """Convert a number such as 2.0 to an integer; ExpressionError, which names `what`, if wrong."""
    try:
        number = int(value) if isinstance(value, float) else operator.index(value)
    except (TypeError, ValueError, OverflowError):
        raise ExpressionError(f"{what}: expected a whole number, found {value!r}") from None
    if isinstance(value, bool) or number != value:
        raise ExpressionError(f"{what}: expected a whole number, found {value!r}")
    return number


def reduced_axes(small: Sequence[int], full: Sequence[int]) -> list[int]:
    """The axes of `full` along which an operand of shape `small` was broadcast."""
    padded = (1,) * (len(full) - len(small)) + tuple(small)
    return [i for i, (n, m) in enumerate(zip(padded, full, strict=True)) if n == 1 and m != 1]
