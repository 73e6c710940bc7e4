"""Elements picked by index arrays along any axis, and the sums that undo it for derivatives."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import implements, operator

__all__ = ["add_gathered", "add_taken", "gather", "scatter", "take"]

_ALL = ("bool", "int32", "uint32", "float16", "float32", "float64")


@operator(types=_ALL)
def take(out: Array, src: Array, indexes: Array, axis: int) -> None:
    """Along an axis, out's element i is src's element indexes[i]; indexes (N,), within bounds."""
    out[...] = np.take(src, indexes, axis)


@operator()
def add_taken(out: Array, src: Array, indexes: Array, axis: int) -> None:
    """Along an axis, out's element indexes[i] += src's element i; indexes may repeat."""
    into, add = np.moveaxis(out, axis, 0), np.moveaxis(src, axis, 0)
    for i, at in enumerate(indexes):
        into[at] += add[i]


@operator(types=_ALL)
def gather(out: Array, src: Array, indexes: Array, axis: int) -> None:
    """out[.., i, ..] = src[.., indexes[.., i, ..], ..]; shapes of out and indexes are equal."""
    out[...] = np.take_along_axis(src, indexes, axis)


@operator()
def add_gathered(out: Array, src: Array, indexes: Array, axis: int) -> None:
    """out[.., indexes[.., i, ..], ..] += src[.., i, ..]; indexes may repeat."""
    for at in np.ndindex(indexes.shape):
        place = (*at[:axis], int(indexes[at]), *at[axis + 1 :])
        out[place] += src[at]


@operator(types=_ALL)
def scatter(out: Array, src: Array, indexes: Array, axis: int) -> None:
    """out[.., indexes[.., i, ..], ..] = src[.., i, ..]; no place given twice, others are kept."""
    np.put_along_axis(out, indexes, src, axis)


@implements("take", "numpy")
def _take(out: np.ndarray, src: np.ndarray, indexes: np.ndarray, axis: int) -> None:
    """numpy.take copes with every stride."""
    if out.flags.c_contiguous:
        np.take(src, indexes, axis, out=out, mode="clip")  # "raise" would buffer the output
    else:
        out[...] = np.take(src, indexes, axis)


@implements("add_taken", "numpy")
def _add_taken(out: np.ndarray, src: np.ndarray, indexes: np.ndarray, axis: int) -> None:
    """Indexes are sorted, so that equal ones are summed in one go."""
    order = np.argsort(indexes, kind="stable")
    places, starts = np.unique(indexes[order], return_index=True)
    if not len(places):
        return
    into, add = np.moveaxis(out, axis, 0), np.moveaxis(src, axis, 0)
    into[places] += np.add.reduceat(add[order], starts, axis=0)


@implements("gather", "numpy")
def _gather(out: np.ndarray, src: np.ndarray, indexes: np.ndarray, axis: int) -> None:
    """numpy.take_along_axis."""
    out[...] = np.take_along_axis(src, indexes, axis)


def _places(indexes: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    found = list(np.ogrid[tuple(slice(n) for n in indexes.shape)])
    found[axis] = indexes
    return tuple(found)


@implements("add_gathered", "numpy")
def _add_gathered(out: np.ndarray, src: np.ndarray, indexes: np.ndarray, axis: int) -> None:
    """Unbuffered, since indexes may repeat."""
    np.add.at(out, _places(indexes, axis), src)


@implements("scatter", "numpy")
def _scatter(out: np.ndarray, src: np.ndarray, indexes: np.ndarray, axis: int) -> None:
    """One assignment."""
    out[_places(indexes, axis)] = src
