"""Joining arrays along an axis, and splitting an array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.basics import add, copy
from nnet3tools.tensor.call import Call, operator_of_formulas
from nnet3tools.tensor.registry import ALL_TYPES


def parts_along(array: Array, sizes: Sequence[int], axis: int) -> list[Array]:
    """Views of the parts of an array that have the given sizes along an axis, in order."""
    found, start, front = [], 0, (slice(None),) * (axis % array.ndim)
    for size in sizes:
        found.append(array[(*front, slice(start, start + size))])
        start += size
    return found


def pairs_along(whole: Array, parts: Sequence[Array], axis: int) -> list[tuple[Array, Array]]:
    """(view of the section of `whole`, part) for each part, in order along an axis."""
    views = parts_along(whole, [part.shape[axis] for part in parts], axis)
    return list(zip(views, parts, strict=True))


@operator_of_formulas(types=ALL_TYPES)
def concatenate(out: Array, parts: Sequence[Array], axis: int) -> Iterator[Call]:
    """Set out to the parts in order along an axis, converted; the decorator runs the Calls."""
    for section, part in pairs_along(out, parts, axis):
        yield Call.of(copy, section, part)


@operator_of_formulas(writes=("parts",), types=ALL_TYPES)
def split(src: Array, parts: Sequence[Array], axis: int) -> Iterator[Call]:
    """Set parts to sections of src along an axis, converted; the decorator runs the Calls."""
    for section, part in pairs_along(src, parts, axis):
        yield Call.of(copy, part, section)


@operator_of_formulas(writes=("parts",))
def add_split(src: Array, parts: Sequence[Array], axis: int) -> Iterator[Call]:
    """Add to each part its section of src along an axis; the same array may be several parts.

    The decorator runs the yielded Calls.
    """
    for section, part in pairs_along(src, parts, axis):
        yield Call.of(add, part, section)
