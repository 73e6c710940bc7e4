"""Operands of formulas: their types, shapes and strides.

Operands that are walked together are broadcast, and have as few axes as possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.formulas import Assignments, Type, type_of_dtype

P = TypeVar("P")


def remembered(known: dict[Any, P], key: Any, make: Callable[[], P], most: int = 512) -> P:
    """known[key], which is set to `make()` if it is missing; `most` entries are first forgotten."""
    if (found := known.get(key)) is None:  # not `in`: hashing a key takes as long as the rest
        if len(known) >= most:
            known.clear()
        found = known[key] = make()
    return found


def is_array(operand: Any) -> bool:
    """Whether an operand is an array of any device, not a number."""
    return hasattr(operand, "strides") and not isinstance(operand, np.generic)


def is_number(operand: Any) -> bool:
    """Whether the operand is a Number (tensor/number.py), whose value is read at each run."""
    return getattr(operand, "is_host_number", False)


def element_strides(array: Any) -> tuple[int, ...]:
    """An array's strides in elements; ProgramError if they are not whole numbers."""
    size, strides = array.dtype.itemsize, array.strides
    if any([s % size for s in strides]):
        raise ProgramError(f"strides {strides} do not fit elements of {size} bytes")
    return tuple([s // size for s in strides])


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
    steps = zip(array.shape, element_strides(array), strict=True)
    return (*(0,) * missing, *[0 if size == 1 else stride for size, stride in steps])


def merge_axes(
    sizes: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """(sizes, strides) that reach the same elements in the same order with the fewest axes.

    Axes of size 1 are dropped, and neighbours joined where strides allow; one axis remains at
    least. `strides` has a sequence for each operand.
    """
    merged: list[int] = []
    walks: list[list[int]] = [[] for _ in strides]
    both = list(zip(walks, strides, strict=True))
    for i in [i for i, n in enumerate(sizes) if n != 1]:
        if merged and all(w[-1] == s[i] * sizes[i] for w, s in both):
            merged[-1] *= sizes[i]
            for w, s in both:
                w[-1] = s[i]
        else:
            merged.append(sizes[i])
            for w, s in both:
                w.append(s[i])
    if not merged:
        return [1], [[0] for _ in strides]
    return merged, walks


def operand_types(operands: Sequence[Any]) -> tuple[Type, ...]:
    """Each operand's Type, a weak one for plain numbers (as in NumPy); ProgramError for others."""
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


def checked_arrays(
    assignments: Assignments, operands: Sequence[Any]
) -> tuple[list[Any], tuple[int, ...], list[Any]]:
    """(arrays among a formula's operands, the shape to which they broadcast, assigned arrays).

    ProgramError if an assigned operand is a plain number, or if an operand has a wrong shape.
    """
    arrays = [o for o in operands if is_array(o)]
    full = broadcast_shape([a.shape for a in arrays])
    targets = [operands[n - 1] for n in assignments.targets]
    for n, target in zip(assignments.targets, targets, strict=True):
        if not is_array(target):
            raise ProgramError(f"element({assignments.text()}) assigns to a plain number, _{n}")
        if not target_fits(target.shape, full, assignments):
            raise ProgramError(
                f"an assigned operand of a formula over {full} must have the full shape, "
                f"not {target.shape}"
            )
    return arrays, full, targets


def reduced_axes(axis: int | None, full: tuple[int, ...]) -> list[int]:
    """The axes of shape `full` that a reduction along `axis` reduces; None: all of them."""
    if axis is None:
        return list(range(len(full)))
    if not -len(full) <= axis < len(full):
        raise ProgramError(f"cannot reduce axis {axis} of shape {full}")
    return [axis % len(full)]


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
