"""How a kernel finds the elements of its operands: merged axes, and a kind of access for each.

The layout is part of a kernel's text. Sizes and strides that are neither 0 nor 1 are arguments.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.tensor.formulas import Type
from nnet3tools.tensor.operands import broadcast_strides, is_array, merge_axes, operand_types


class Access(enum.Enum):
    """How a kernel finds an operand's elements along an axis; or that the operand is a number."""

    REPEATED = "every index has the same element"
    CONTIGUOUS = "neighbours in memory"
    STRIDED = "the stride is an argument"
    NUMBER = "a plain number, whose value is an argument"
    NUMBER_IN_MEMORY = "a plain number, whose address is an argument"

    __hash__ = object.__hash__  # that of Enum is Python code


_NUMBERS = (Access.NUMBER, Access.NUMBER_IN_MEMORY)


@dataclass(frozen=True)
class Walk:
    """How a kernel finds its operands' elements, along `axes` axes.

    `accesses` has for each operand (from 0) the kind of access for each axis, outermost first,
    or one entry for a plain number.
    """

    types: tuple[Type, ...]
    accesses: tuple[tuple[Access, ...], ...]
    axes: int

    def is_array(self, i: int) -> bool:
        """Whether operand `i` is an array."""
        return self.accesses[i][0] not in _NUMBERS

    def varies(self, i: int, axis: int = -1) -> bool:
        """Whether operand `i` is an array whose elements differ along an axis."""
        return self.is_array(i) and self.accesses[i][axis] is not Access.REPEATED

    def is_contiguous(self, i: int) -> bool:
        """Whether neighbours of operand `i` along the innermost axis are neighbours in memory."""
        return self.accesses[i][-1] is Access.CONTIGUOUS

    def arguments(self, operands: Sequence[Any], strides: Sequence[Sequence[int]]) -> list[Any]:
        """A kernel's arguments for the operands: for each, the array and strides, or the number.

        `strides` are those of the arrays, in elements; only strides that the kernel's text
        does not contain are arguments.
        """
        values: list[Any] = []
        walked = iter(strides)
        for operand, accesses in zip(operands, self.accesses, strict=True):
            values.append(operand)
            if accesses[0] not in _NUMBERS:
                steps = zip(next(walked), accesses, strict=True)
                values += [s for s, access in steps if access is Access.STRIDED]
        return values


def walk_of(
    operands: Sequence[Any], strides: Sequence[Sequence[int]], exact: int, single: int = 0
) -> Walk:
    """The kinds of access of operands whose arrays have these strides, in elements, by axis.

    Only along the innermost `exact` axes have strides 0 and 1 kinds of their own, so that fewer
    kernels are compiled. `single` is an axis of size 1 (-1 or -2; 0: none) along which all
    arrays count as varying.
    """
    axes, inner = len(strides[0]), min(exact, len(strides[0]))
    walked = iter(strides)
    accesses = list[tuple[Access, ...]]()
    for operand in operands:
        if not is_array(operand):
            in_memory = hasattr(operand, "array")
            accesses.append((Access.NUMBER_IN_MEMORY if in_memory else Access.NUMBER,))
            continue
        steps = next(walked)[axes - inner :]
        known = [Access.STRIDED if s else Access.REPEATED for s in steps]
        if steps[-1] == 1:
            known[-1] = Access.CONTIGUOUS
        if single:
            known[single] = Access.STRIDED
        accesses.append((*[Access.STRIDED] * (axes - inner), *known))
    return Walk(operand_types(operands), tuple(accesses), axes)


def merged_strides(
    arrays: Sequence[Any], full: tuple[int, ...], kept_axes: int = 0
) -> tuple[list[int], list[list[int]]]:
    """(sizes of axes, strides of each array) for arrays broadcast to `full`, with the fewest axes.

    The last `kept_axes` axes are not merged with others.
    """
    strides = [broadcast_strides(a, full) for a in arrays]
    if not kept_axes:
        return merge_axes(full, strides)
    sizes, steps = merge_axes(full[:-kept_axes], [s[:-kept_axes] for s in strides])
    whole = [[*outer, *s[-kept_axes:]] for outer, s in zip(steps, strides, strict=True)]
    return [*sizes, *full[-kept_axes:]], whole
