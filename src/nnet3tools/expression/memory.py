"""Placement of buffers with known lifetimes in one arena."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnet3tools import tensor
from nnet3tools.expression.shapes import Shape
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.tensor import Array
from nnet3tools.tensor.formulas import Type, dtype_of
from nnet3tools.tensor.offsets import ALIGNMENT, assign_offsets, rounded_up


@dataclass(eq=False)
class Buffer:
    """A value or gradient, `offset` bytes into common memory; steps `first` to `last` use it."""

    shape: Shape
    type: Type
    first: int
    last: int
    offset: int = 0

    @property
    def num_bytes(self) -> int:
        """Size of the value or gradient in bytes, rounded up to the alignment."""
        size = math.prod(self.shape) * dtype_of(self.type).itemsize
        return max(ALIGNMENT, rounded_up(size))

    def touch(self, step: int) -> None:
        """Extend the range of steps from `first` to `last`, if necessary, to include `step`."""
        self.first, self.last = min(self.first, step), max(self.last, step)


def place(buffers: Sequence[Buffer]) -> int:
    """Set the offset of each buffer, so that buffers in use together do not overlap.

    Returns the number of bytes of the memory that has all buffers.
    """
    offsets, total = assign_offsets(
        [b.num_bytes for b in buffers], [b.first for b in buffers], [b.last for b in buffers]
    )
    for buffer, offset in zip(buffers, offsets, strict=True):
        buffer.offset = offset
    return total


class Scratch:
    """Memory shared by several executions, for values needed only during one run.

    When it grows, executions bound before keep the old memory.
    """

    def __init__(self) -> None:
        self._memory: dict[type, Array] = {}

    def take(self, num_bytes: int, like: Array | None) -> Array:
        """The first `num_bytes` undefined bytes on `like`'s device; all results share memory."""
        found = self._memory.get(type(like))
        if found is None or found.size < num_bytes:
            grown = 0 if found is None else found.size + found.size // 2
            found = tensor.empty((max(num_bytes, grown),), like=like, dtype="uint8")
            self._memory[type(like)] = found
        return found[:num_bytes]


SCRATCH = Scratch()
"""Scratch memory for executions that run to their end before another one starts."""


def allocate(
    buffers: Sequence[Buffer], like: Array | None, scratch: Scratch | None = None
) -> tuple[dict[Buffer, Array], int]:
    """Allocate common memory, from `scratch` if given: (array of each buffer, number of bytes)."""
    size = place(buffers)
    if scratch is None:
        arena = tensor.empty((size,), like=like, dtype="uint8")
    else:
        arena = scratch.take(size, like)
    arrays = {}
    for b in buffers:
        dtype = dtype_of(b.type)
        part = arena[b.offset : b.offset + math.prod(b.shape) * dtype.itemsize]
        arrays[b] = part.view(dtype).reshape(b.shape)
    return arrays, size
