"""Arrays one after the other along an axis, and the parts of such an array."""

from __future__ import annotations

from collections.abc import Sequence

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator

__all__ = ["add_split", "concatenate", "pairs_along", "parts_along", "split"]

_ALL = ("bool", "int32", "uint32", "float16", "float32", "float64")


def parts_along(array: Array, sizes: Sequence[int], axis: int) -> list[Array]:
    """Views of the parts of an array that have the given sizes along an axis, in order."""
    found, start, front = [], 0, (slice(None),) * (axis % array.ndim)
    for size in sizes:
        found.append(array[(*front, slice(start, start + size))])
        start += size
    return found


def pairs_along(whole: Array, parts: Sequence[Array], axis: int) -> list[tuple[Array, Array]]:
    """Each part with the view of the whole that it belongs to, in order."""
    views = parts_along(whole, [part.shape[axis] for part in parts], axis)
    return list(zip(views, parts, strict=True))


@operator(types=_ALL)
def concatenate(out: Array, parts: Sequence[Array], axis: int) -> None:
    """Set out to the parts one after the other along an axis, converted to out's type."""
    for to, part in pairs_along(out, parts, axis):
        to[...] = part


@operator(writes=("parts",), types=_ALL)
def split(src: Array, parts: Sequence[Array], axis: int) -> None:
    """Set the parts to what is one after the other in src along an axis, converted."""
    for of, part in pairs_along(src, parts, axis):
        part[...] = of


@operator(writes=("parts",))
def add_split(src: Array, parts: Sequence[Array], axis: int) -> None:
    """Add to the parts what is one after the other in src along an axis; parts may be the same."""
    for of, part in pairs_along(src, parts, axis):
        part[...] = part + of
