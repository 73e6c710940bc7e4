"""Operands of kernels on CUDA: element types, arguments, shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.cuda.device import pointer
from nnet3tools.tensor.emit.walk import is_array
from nnet3tools.tensor.formulas import Type, type_of_dtype


def operand_types(operands: Sequence[Any]) -> tuple[Type, ...]:
    """The Type of each operand, weak for plain numbers."""
    return tuple(map(_type, operands))


def _type(operand: Any) -> Type:
    if is_array(operand):
        return type_of_dtype(operand.dtype)
    if isinstance(operand, (bool, np.bool_, int, np.integer)):
        return Type.WEAK_INT
    if isinstance(operand, (float, np.floating)):
        return Type.WEAK_FLOAT
    raise ProgramError(f"a formula's operand must be an array or a number, not {operand!r}")


def arguments(values: Sequence[Any]) -> list[Any]:
    """Values as kernel arguments: addresses of arrays, int64 for integers, float64 for floats."""
    return [
        np.uint64(pointer(v)) if is_array(v)
        else np.float64(v) if isinstance(v, (float, np.floating))
        else np.int64(v)
        for v in values
    ]  # fmt: skip


def _extent(array: Any) -> tuple[int, int]:
    """(address of the array's first byte, address after its last byte)."""
    low = high = pointer(array)
    for size, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            low += (size - 1) * stride
        else:
            high += (size - 1) * stride
    return low, high + array.dtype.itemsize


def overlap(target: Any, other: Any) -> str:
    """How two arrays share memory: "" (not), "same" (the same elements), "partial" (or perhaps)."""
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
    """Whether two arrays are blocks of different columns of one matrix."""
    if a.ndim != 2 or b.ndim != 2 or a.strides[0] != b.strides[0] or a.strides[0] <= 0:
        return False
    pitch = a.strides[0]
    widths = [(x.shape[1] - 1) * x.strides[1] + x.dtype.itemsize for x in (a, b)]
    if min(a.strides[1], b.strides[1]) < 0 or max(widths) > pitch:
        return False
    gap = (pointer(b) - pointer(a)) % pitch
    return gap >= widths[0] and gap + widths[1] <= pitch


def last_axis(array: Any, axis: int) -> Any:
    """The array with four axes, the given one last."""
    if array.ndim > 4:
        raise ProgramError(f"an operator along an axis of an array of {array.ndim} axes")
    axis %= array.ndim
    order = [*(i for i in range(array.ndim) if i != axis), axis]
    return array.transpose(order)[(None,) * (4 - array.ndim)]
