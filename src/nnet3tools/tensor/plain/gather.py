"""Gathering and scattering on NumPy."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.registry import implements


@implements("take", "numpy")
def take(out: np.ndarray, src: np.ndarray, indexes: np.ndarray, axis: int) -> None:
    """numpy.take copes with every stride."""
    if out.flags.c_contiguous:
        np.take(src, indexes, axis, out=out, mode="clip")  # "raise" would buffer the output
    else:
        out[...] = np.take(src, indexes, axis)


@implements("add_taken", "numpy")
def add_taken(out: np.ndarray, src: np.ndarray, indexes: np.ndarray, axis: int) -> None:
    """Indexes are sorted, so that equal ones are summed in one go."""
    order = np.argsort(indexes, kind="stable")
    places, starts = np.unique(indexes[order], return_index=True)
    if not len(places):
        return
    into, add = np.moveaxis(out, axis, 0), np.moveaxis(src, axis, 0)
    into[places] += np.add.reduceat(add[order], starts, axis=0)


@implements("gather", "numpy")
def gather(out: np.ndarray, src: np.ndarray, indexes: np.ndarray, axis: int) -> None:
    """numpy.take_along_axis."""
    out[...] = np.take_along_axis(src, indexes, axis)


def _places(indexes: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    found = list(np.ogrid[tuple(slice(n) for n in indexes.shape)])
    found[axis] = indexes
    return tuple(found)


@implements("add_gathered", "numpy")
def add_gathered(out: np.ndarray, src: np.ndarray, indexes: np.ndarray, axis: int) -> None:
    """Unbuffered, since indexes may repeat."""
    np.add.at(out, _places(indexes, axis), src)


@implements("scatter", "numpy")
def scatter(out: np.ndarray, src: np.ndarray, indexes: np.ndarray, axis: int) -> None:
    """One assignment."""
    out[_places(indexes, axis)] = src
