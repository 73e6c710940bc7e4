"""Strides of operands that are walked together: broadcast, and with as few axes as possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError


def is_array(operand: Any) -> bool:
    """Whether an operand is an array of any device, not a number."""
    return hasattr(operand, "strides") and not isinstance(operand, np.generic)


def is_number(operand: Any) -> bool:
    """Whether the operand is a Number (tensor/number.py), whose value is read at each run."""
    return getattr(operand, "is_host_number", False)


def element_strides(array: Any) -> tuple[int, ...]:
    """An array's strides in elements; ProgramError if they are not whole numbers."""
    size = array.dtype.itemsize
    if any(s % size for s in array.strides):
        raise ProgramError(f"strides {array.strides} do not fit elements of {size} bytes")
    return tuple(s // size for s in array.strides)


def broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape to which several shapes broadcast; ProgramError if there is none."""
    if len(set(shapes)) == 1:
        return shapes[0]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        text = ", ".join(map(str, shapes))
        raise ProgramError(f"operands do not broadcast: shapes {text}") from None


def broadcast_strides(array: Any, full: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements for walking the shape `full`: 0 along axes that are repeated."""
    missing = len(full) - len(array.shape)
    own = tuple(
        0 if size == 1 else stride
        for size, stride in zip(array.shape, element_strides(array), strict=True)
    )
    return (0,) * missing + own


def merge_axes(
    sizes: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """(sizes, strides) that reach the same elements in the same order with the fewest axes.

    Axes of size 1 are dropped, and neighbours joined where strides allow; one axis remains at
    least. `strides` has a sequence for each operand.
    """
    axes = [i for i, n in enumerate(sizes) if n != 1]
    merged: list[int] = []
    walks: list[list[int]] = [[] for _ in strides]
    for i in axes:
        both = list(zip(walks, strides, strict=True))
        if merged and all(w[-1] == s[i] * sizes[i] for w, s in both):
            merged[-1] *= sizes[i]
            for w, s in zip(walks, strides, strict=True):
                w[-1] = s[i]
        else:
            merged.append(sizes[i])
            for w, s in zip(walks, strides, strict=True):
                w.append(s[i])
    if not merged:
        return [1], [[0] for _ in strides]
    return merged, walks
