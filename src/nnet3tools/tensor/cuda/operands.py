"""Operands of kernels on CUDA: arguments, the memory that they share, views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.cuda.device import pointer
from nnet3tools.tensor.strides import is_array


def arguments(values: Sequence[Any]) -> list[Any]:
    """Values as kernel arguments: addresses of arrays, int64 for integers, float64 for floats."""
    return [
        np.uint64(pointer(v)) if is_array(v)
        else np.float64(v) if isinstance(v, (float, np.floating))
        else np.int64(v)
        for v in values
    ]  # fmt: skip


def span(array: Any) -> tuple[int, int, int, int]:
    """(address of the first byte, address past the last byte, pitch, width in bytes) of an array.

    For a matrix with gaps between its rows, pitch is the distance of rows, width the length of
    a row; for one with gaps between its columns the distance and the length of elements. Both are
    0 for other arrays.
    """
    low = high = pointer(array)
    if 0 in array.shape:
        return low, low, 0, 0
    for size, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            low += (size - 1) * stride
        else:
            high += (size - 1) * stride
    high += array.dtype.itemsize
    if array.ndim == 2 and array.strides[1] >= 0:
        if array.dtype.itemsize < array.strides[1] and array.strides[0] % array.strides[1] == 0:
            return low, high, array.strides[1], array.dtype.itemsize
        width = (array.shape[1] - 1) * array.strides[1] + array.dtype.itemsize
        if width <= array.strides[0]:
            return low, high, array.strides[0], width
    return low, high, 0, 0


def overlap(target: Any, other: Any) -> str:
    """How arrays share memory: "" (not), "same" (all elements), "partial" (partly, or perhaps)."""
    low_a, high_a, pitch_a, width_a = span(target)
    low_b, high_b, pitch_b, width_b = span(other)
    if high_a <= low_b or high_b <= low_a or 0 in target.shape or 0 in other.shape:
        return ""
    same_place = pointer(target) == pointer(other) and target.dtype == other.dtype
    if same_place and target.shape == other.shape and target.strides == other.strides:
        return "same"
    if pitch_a and pitch_a == pitch_b:
        gap = (low_b - low_a) % pitch_a
        return "" if gap >= width_a and gap + width_b <= pitch_a else "partial"
    return "partial"


def last_axis(array: Any, axis: int) -> Any:
    """A view with four axes: axes of size 1 in front, then the array's other axes, then `axis`."""
    if array.ndim > 4:
        raise ProgramError(f"an operator along an axis of an array of {array.ndim} axes")
    axis %= array.ndim
    order = [*(i for i in range(array.ndim) if i != axis), axis]
    return array.transpose(order)[(None,) * (4 - array.ndim)]
