"""Elements picked by index arrays along an axis, and the sums that their derivatives need."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import ALL_TYPES, operator


@operator(types=ALL_TYPES)
def take(out: Array, src: Array, indexes: Array, axis: int) -> None:
    """Set out's element i along an axis to src's element indexes[i]; indexes (N,) within bounds."""
    if out.flags.c_contiguous:
        np.take(src, indexes, axis, out=out, mode="clip")  # "raise" would buffer the output
    else:
        out[...] = np.take(src, indexes, axis)


@operator()
def add_taken(out: Array, src: Array, indexes: Array, axis: int) -> None:
    """Add src's element i along an axis to out's element indexes[i]; indexes may repeat."""
    order = np.argsort(indexes, kind="stable")
    places, starts = np.unique(indexes[order], return_index=True)
    if not len(places):
        return
    into, add = np.moveaxis(out, axis, 0), np.moveaxis(src, axis, 0)
    into[places] += np.add.reduceat(add[order], starts, axis=0)


@operator(types=ALL_TYPES)
def gather(out: Array, src: Array, indexes: Array, axis: int) -> None:
    """Set out[.., i, ..] to src[.., indexes[.., i, ..], ..]; out and indexes have one shape."""
    out[...] = np.take_along_axis(src, indexes, axis)


@operator()
def add_gathered(out: Array, src: Array, indexes: Array, axis: int) -> None:
    """Add src[.., i, ..] to out[.., indexes[.., i, ..], ..]; indexes may repeat."""
    np.add.at(out, _places(indexes, axis), src)


@operator(types=ALL_TYPES)
def scatter(out: Array, src: Array, indexes: Array, axis: int) -> None:
    """Set out[.., indexes[.., i, ..], ..] to src[.., i, ..]; indexes on a line must differ."""
    out[_places(indexes, axis)] = src


def _places(indexes: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    """A NumPy index for the elements [.., indexes[.., i, ..], ..] of an array along `axis`."""
    found = list(np.ogrid[tuple(slice(n) for n in indexes.shape)])
    found[axis] = indexes
    return tuple(found)
