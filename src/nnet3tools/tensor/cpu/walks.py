"""How a kernel walks its operands: nested loops over merged axes, the innermost one vectorised.

The layout is part of a kernel's text: the number of axes, and by operand a letter for the innermost
axis (0 repeated, 1 contiguous, s strided). Sizes and other strides are arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnet3tools.tensor.cpu.kernels import Number
from nnet3tools.tensor.cpu.spelling import C_TYPES, STORED_TYPES, converted
from nnet3tools.tensor.formulas import Type
from nnet3tools.tensor.plain.operands import is_number, operand_types
from nnet3tools.tensor.strides import broadcast_strides, merge_axes

__all__ = ["SIMD", "Parameters", "Walk", "arguments", "can_walk", "walk", "walk_of"]

SIMD = "#pragma omp simd"

_DTYPES = frozenset(np.dtype(t.value) for t in STORED_TYPES if not t.is_weak)


@dataclass(frozen=True)
class Walk:
    """The layout of operands, by operand (from 0)."""

    types: tuple[Type, ...]
    letters: tuple[str, ...]
    """Of the innermost axis; "n" for a plain number, "m" for one in memory."""
    axes: int

    @property
    def last(self) -> int:
        """The innermost axis."""
        return self.axes - 1

    def is_array(self, i: int) -> bool:
        """Whether an operand is an array."""
        return self.letters[i] in "01s"

    def varies(self, i: int) -> bool:
        """Whether an operand differs along the innermost axis."""
        return self.letters[i] in "1s"

    def pointer_type(self, i: int) -> str:
        """The C type of an operand's elements."""
        return STORED_TYPES[self.types[i]]

    def row(self, i: int, indexes: Sequence[str]) -> str:
        """The line that finds an operand's row from the indexes of the outer axes."""
        offsets = [f"{index} * s{i}_{axis}" for axis, index in enumerate(indexes)]
        where = " + ".join([f"p{i}", *offsets])
        return f"{self.pointer_type(i)} *const q{i} = {where};"

    def place(self, i: int, index: str = "i") -> str:
        """An element of an operand's row."""
        step = {"0": "0", "1": index, "s": f"{index} * s{i}_{self.last}"}[self.letters[i]]
        return f"q{i}[{step}]"

    def load(self, i: int, index: str = "i") -> str:
        """The line that loads an element as `x1`, `x2`, ..."""
        return f"const {C_TYPES[self.types[i]]} x{i + 1} = {self.place(i, index)};"

    def store(self, i: int, value: str, held: str, index: str = "i") -> str:
        """The line that stores a value of a C type."""
        return f"{self.place(i, index)} = {converted(value, held, C_TYPES[self.types[i]])};"


class Parameters:
    """The lines that take a kernel's arguments from `w`, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def size(self, name: str) -> None:
        """A size or stride."""
        self._take(f"const i64 {name} = w[{{}}].i;")

    def number(self, name: str) -> None:
        """A plain number."""
        self._take(f"const f64 {name} = w[{{}}].f;")

    def number_at(self, name: str) -> None:
        """The address of a number."""
        self._take(f"const f64 {name} = *(const f64 *)w[{{}}].p;")

    def pointer(self, name: str, c_type: str) -> None:
        """The address of an array's first element."""
        self._take(f"{c_type} *const {name} = ({c_type} *)w[{{}}].p;")

    def walked(self, found: Walk) -> None:
        """The operands of a walk, as `arguments` gives them."""
        for i, letter in enumerate(found.letters):
            if letter == "n":
                take = self.size if found.types[i] is Type.WEAK_INT else self.number
                take(f"x{i + 1}")
            elif letter == "m":
                self.number_at(f"x{i + 1}")
            else:
                self.pointer(f"p{i}", found.pointer_type(i))
                for axis in range(found.axes - (letter != "s")):
                    self.size(f"s{i}_{axis}")

    def _take(self, line: str) -> None:
        self.lines.append(line.format(len(self.lines)))


def arguments(found: Walk, operands: Sequence[Any], strides: Sequence[Sequence[int]]) -> list[Any]:
    """The arguments that `Parameters.walked` takes."""
    values: list[Any] = []
    walked = iter(strides)
    for i, (operand, letter) in enumerate(zip(operands, found.letters, strict=True)):
        if letter == "n":
            is_integer = found.types[i] is Type.WEAK_INT
            values.append(int(operand) if is_integer else Number(float(operand)))
        elif letter == "m":
            values.append(operand.array)
        else:
            values.append(operand)
            values += next(walked)[: found.axes - (letter != "s")]
    return values


def can_walk(operands: Sequence[Any]) -> bool:
    """Whether kernels know all types, and strides are whole numbers of elements."""
    for operand in operands:
        if isinstance(operand, np.ndarray):
            if operand.dtype not in _DTYPES or any(s % operand.itemsize for s in operand.strides):
                return False
        elif not isinstance(operand, (int, float, np.integer, np.floating, np.bool_)):
            if not is_number(operand):
                return False
    return True


def walk(
    operands: Sequence[Any], full: tuple[int, ...], keep_last: bool = False
) -> tuple[Walk, list[int], list[list[int]]]:
    """The walk over operands broadcast to `full`; its sizes, and its strides by array.

    With `keep_last` the last axis is not merged with others: it is a row to be reduced.
    """
    arrays = [o for o in operands if isinstance(o, np.ndarray)]
    strides = [broadcast_strides(a, full) for a in arrays]
    if keep_last:
        sizes, steps = merge_axes(full[:-1], [s[:-1] for s in strides])
        sizes, steps = (
            [*sizes, full[-1]],
            [[*outer, whole[-1]] for outer, whole in zip(steps, strides, strict=True)],
        )
    else:
        sizes, steps = merge_axes(full, strides)
    return walk_of(operands, steps), sizes, steps


def walk_of(operands: Sequence[Any], strides: Sequence[Sequence[int]]) -> Walk:
    """The walk over operands of which the arrays have these strides."""
    walked = iter(strides)
    letters = tuple(_letter(o, walked) for o in operands)
    return Walk(operand_types(operands), letters, len(strides[0]))


def _letter(operand: Any, walked: Iterator[Sequence[int]]) -> str:
    if isinstance(operand, np.ndarray):
        step = next(walked)[-1]
        return str(step) if step in (0, 1) else "s"
    return "m" if is_number(operand) else "n"
