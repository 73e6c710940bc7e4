"""Operands of a kernel: element types, strides in elements, merged axes, overlaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.cupy_backend.device import pointer
from nnet3tools.tensor.functional import Type, type_of_dtype

__all__ = [
    "broadcast_shape",
    "broadcast_strides",
    "element_strides",
    "is_array",
    "merge_axes",
    "operand_type",
    "overlap",
]


def is_array(operand: Any) -> bool:
    """Whether an operand is an array (else a plain number)."""
    return hasattr(operand, "strides") and not isinstance(operand, np.generic)


def operand_type(operand: Any) -> Type:
    """The Type of an operand, weak for plain numbers."""
    if is_array(operand):
        return type_of_dtype(operand.dtype)
    if isinstance(operand, (bool, np.bool_, int, np.integer)):
        return Type.WEAK_INT
    if isinstance(operand, (float, np.floating)):
        return Type.WEAK_FLOAT
    raise ProgramError(f"a formula's operand must be an array or a number, not {operand!r}")


def element_strides(array: Any) -> tuple[int, ...]:
    """Strides in elements; ProgramError if they are no whole number of them."""
    size = array.dtype.itemsize
    if any(s % size for s in array.strides):
        raise ProgramError(f"strides {array.strides} do not fit elements of {size} bytes")
    return tuple(s // size for s in array.strides)


def broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The common shape of several; ProgramError if there is none."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ProgramError(f"shapes do not fit together: {list(shapes)}") from None


def broadcast_strides(array: Any, full: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements for walking the full shape: 0 along axes that are repeated."""
    missing = len(full) - len(array.shape)
    own = tuple(
        0 if size == 1 else stride
        for size, stride in zip(array.shape, element_strides(array), strict=True)
    )
    return (0,) * missing + own


def merge_axes(
    sizes: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """The same walk with fewest axes: those of size 1 dropped, those that follow on joined.

    At least one axis is left. `strides` has one sequence an operand.
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


def _extent(array: Any) -> tuple[int, int]:
    """First byte and one past the last."""
    low = high = pointer(array)
    for size, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            low += (size - 1) * stride
        else:
            high += (size - 1) * stride
    return low, high + array.dtype.itemsize


def overlap(target: Any, other: Any) -> str:
    """How two arrays share memory: "", "same" (the same elements), or "partial" (or maybe so)."""
    if 0 in target.shape or 0 in other.shape:
        return ""
    (low_a, high_a), (low_b, high_b) = _extent(target), _extent(other)
    if high_a <= low_b or high_b <= low_a:
        return ""
    same_place = pointer(target) == pointer(other) and target.dtype == other.dtype
    if same_place and target.shape == other.shape and target.strides == other.strides:
        return "same"
    return "" if _different_columns(target, other) else "partial"


def _different_columns(a: Any, b: Any) -> bool:
    """Whether both are blocks of columns of one matrix that have none in common."""
    if a.ndim != 2 or b.ndim != 2 or a.strides[0] != b.strides[0] or a.strides[0] <= 0:
        return False
    pitch = a.strides[0]
    widths = [(x.shape[1] - 1) * x.strides[1] + x.dtype.itemsize for x in (a, b)]
    if min(a.strides[1], b.strides[1]) < 0 or max(widths) > pitch:
        return False
    gap = (pointer(b) - pointer(a)) % pitch
    return gap >= widths[0] and gap + widths[1] <= pitch
