"""Operands of a kernel: element types, strides in elements, merged axes, overlaps."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.cuda.device import pointer
from nnet3tools.tensor.formulas import Type, type_of_dtype
from nnet3tools.tensor.strides import (
    broadcast_shape,
    broadcast_strides,
    element_strides,
    merge_axes,
)

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
