"""The types and shapes of a formula's operands, and memory that operands share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.formulas import Assignments, Type, type_of_dtype
from nnet3tools.tensor.plain.addresses import address
from nnet3tools.tensor.strides import is_array, is_number


def operand_types(operands: Sequence[Any]) -> tuple[Type, ...]:
    """The Type of each operand, weak for plain numbers; ProgramError for anything else."""
    return tuple(_type(operand) for operand in operands)


def _type(operand: Any) -> Type:
    if is_array(operand):
        return type_of_dtype(operand.dtype)
    if isinstance(operand, (bool, np.bool_, int, np.integer)):
        return Type.WEAK_INT
    if isinstance(operand, (float, np.floating)) or is_number(operand):
        return Type.WEAK_FLOAT
    raise ProgramError(f"a formula's operand must be an array or a number, not {operand!r}")


def target_fits(shape: tuple[int, ...], full: tuple[int, ...], assignments: Assignments) -> bool:
    """Whether an assigned operand has the full shape, or that of a reduction in the formula.

    It may have one column if the formula reduces rows, and one row if the formula reduces columns.
    """
    padded = (1,) * (len(full) - len(shape)) + shape
    if padded == full or (assignments.reduces_rows and padded == (*full[:-1], 1)):
        return True
    return assignments.reduces_columns and padded == (1,) * (len(full) - 1) + full[-1:]


def with_axes(array: np.ndarray, axes: int) -> np.ndarray:
    """A view of the array with `axes` axes: axes of size 1 are put in front."""
    return array[(None,) * (axes - array.ndim)] if array.ndim < axes else array


def collapse(operands: Sequence[Any], full: tuple[int, ...]) -> list[Any] | None:
    """The operands with arrays as vectors; None unless arrays are contiguous and have shape `full`.

    An array of one element need not have that shape.
    """
    for operand in operands:
        if isinstance(operand, np.ndarray):
            whole = operand.shape == full and operand.flags.c_contiguous
            if not whole and operand.size != 1:
                return None
    return [o.reshape(-1) if isinstance(o, np.ndarray) else o for o in operands]


_MAX_WORK: Any = 10000
"""Bound on the search for common elements of two strided arrays."""


def overlap(target: np.ndarray, other: np.ndarray) -> str:
    """How arrays share memory: "" (not), "same" (element for element), or "partial"."""
    if target is other:
        return "same"
    if not np.may_share_memory(target, other):
        return ""
    distance = address(other) - address(target)
    if distance == 0 and target.strides == other.strides:
        if target.shape == other.shape and target.dtype == other.dtype:
            return "same"
    if _apart_in_columns(target, other, distance):
        return ""
    try:
        return "partial" if np.shares_memory(target, other, max_work=_MAX_WORK) else ""
    except np.exceptions.TooHardError:
        return "partial"


def _apart_in_columns(a: np.ndarray, b: np.ndarray, distance: int) -> bool:
    """Whether two matrices are different columns of one matrix; b begins `distance` bytes after a.

    The gates of an LSTM are such matrices, and NumPy's search for common elements is slow on them.
    """
    if not (a.ndim == b.ndim == 2 and a.strides[0] == b.strides[0] > 0):
        return False
    if min(a.strides[1], b.strides[1]) <= 0:
        return False
    stride = a.strides[0]
    wide_a, wide_b = (
        (x.shape[1] - 1) * x.strides[1] + x.itemsize if x.shape[1] else 0 for x in (a, b)
    )
    offset = distance % stride
    return wide_a <= offset and offset + wide_b <= stride
