"""The types and shapes of a formula's operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.formulas import Assignments, Type, type_of_dtype
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


def target_of(out: Any, shape: tuple[int, ...], axis: int) -> Any:
    """A view of an aggregate's output in which the reduced axis has size 1, as in `shape`.

    ProgramError if the shapes differ.
    """
    target = out[(*(slice(None),) * axis, None)] if out.ndim == len(shape) - 1 else out
    if target.shape != shape:
        raise ProgramError(f"an aggregate of shape {shape} does not fit an output {out.shape}")
    return target


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
