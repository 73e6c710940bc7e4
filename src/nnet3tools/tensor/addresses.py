"""Where arrays are in memory, and how two arrays share memory."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

import numpy as np

_DATA = object.__basicsize__
"""The data pointer is the first field of NumPy's array object (PyArrayObject_fields). Reading the
field takes a tenth of the time of `array.ctypes.data`, and operators do it at every call."""
_word = ctypes.c_size_t.from_address
_base = np.zeros((3, 5), np.float32)
_FIELD_IS_RIGHT = all(
    _word(id(a) + _DATA).value == a.ctypes.data
    for a in (_base, _base[1:, 2:], _base.T[3], _base[:0])
)


def address(array: Any) -> int:
    """The address of the first element of an array of any device."""
    if not isinstance(array, np.ndarray):
        return int(array.data.ptr)
    return _word(id(array) + _DATA).value if _FIELD_IS_RIGHT else int(array.ctypes.data)


def same_place(a: Any, b: Any) -> bool:
    """Whether two arrays of one device begin at the same address."""
    return address(a) == address(b)


def span(array: Any) -> tuple[int, int, int, int]:
    """(address of the first byte, address past the last byte, pitch, width in bytes) of an array.

    For a matrix with gaps between its rows, pitch is the distance of rows, width the length of a
    row; for gaps between columns, the distance and length of elements. Both are 0 for other arrays.
    """
    low = high = address(array)
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


_MAX_WORK: Any = 10000
"""Bound on NumPy's search for common elements of two strided arrays."""


def overlap(target: Any, other: Any) -> str:
    """How arrays share memory: "" (not), "same" (all elements), "partial" (partly, or perhaps)."""
    if target is other:
        return "same"
    on_host = target.__class__ is np.ndarray
    if on_host and not np.may_share_memory(target, other):
        return ""
    low_a, high_a, pitch_a, width_a = span(target)
    low_b, high_b, pitch_b, width_b = span(other)
    if high_a <= low_b or high_b <= low_a or 0 in target.shape or 0 in other.shape:
        return ""
    if same_place(target, other) and target.dtype == other.dtype:
        if target.shape == other.shape and target.strides == other.strides:
            return "same"
    gap = (low_b - low_a) % (pitch_a or 1)
    if pitch_a and pitch_a == pitch_b and gap >= width_a and gap + width_b <= pitch_a:
        return ""
    if on_host:  # NumPy's search is slow on columns of one matrix, such as the gates of an LSTM
        with contextlib.suppress(np.exceptions.TooHardError):
            return "partial" if np.shares_memory(target, other, max_work=_MAX_WORK) else ""
    return "partial"
