"""Row and column operations on NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnet3tools.tensor.registry import implements

Indexes = np.ndarray


@implements("copy_rows", "numpy")
def copy_rows(out: np.ndarray, src: np.ndarray, indexes: Indexes) -> None:
    """One gather."""
    missing = indexes < 0
    if not len(src) or missing.all():
        out.fill(0.0)
        return
    out[...] = src[indexes]
    out[missing] = 0.0


@implements("add_rows", "numpy")
def add_rows(out: np.ndarray, src: np.ndarray, indexes: Indexes, alpha: float = 1.0) -> None:
    """One gather and an addition."""
    rows = np.flatnonzero(indexes >= 0)
    out[rows] += out.dtype.type(alpha) * src[indexes[rows]]


@implements("copy_rows_multi", "numpy")
def copy_rows_multi(
    out: np.ndarray, sources: Sequence[np.ndarray], source_index: Indexes, row_index: Indexes
) -> None:
    """One gather a source."""
    out[source_index < 0] = 0.0
    for source in np.unique(source_index[source_index >= 0]):
        rows = np.flatnonzero(source_index == source)
        out[rows] = sources[source][row_index[rows]]


@implements("add_rows_multi", "numpy")
def add_rows_multi(
    out: np.ndarray,
    sources: Sequence[np.ndarray],
    source_index: Indexes,
    row_index: Indexes,
    alpha: float = 1.0,
) -> None:
    """One gather and addition a source."""
    for source in np.unique(source_index[source_index >= 0]):
        rows = np.flatnonzero(source_index == source)
        out[rows] += out.dtype.type(alpha) * sources[source][row_index[rows]]


@implements("copy_to_rows_multi", "numpy")
def copy_to_rows_multi(
    src: np.ndarray, dests: Sequence[np.ndarray], dest_index: Indexes, row_index: Indexes
) -> None:
    """One scatter a destination."""
    for dest in np.unique(dest_index[dest_index >= 0]):
        rows = np.flatnonzero(dest_index == dest)
        dests[dest][row_index[rows]] = src[rows]


@implements("add_to_rows_multi", "numpy")
def add_to_rows_multi(
    src: np.ndarray,
    dests: Sequence[np.ndarray],
    dest_index: Indexes,
    row_index: Indexes,
    alpha: float = 1.0,
) -> None:
    """One scatter-add a destination."""
    for dest in np.unique(dest_index[dest_index >= 0]):
        rows = np.flatnonzero(dest_index == dest)
        np.add.at(dests[dest], row_index[rows], src.dtype.type(alpha) * src[rows])


@implements("add_row_ranges", "numpy")
def add_row_ranges(out: np.ndarray, src: np.ndarray, ranges: Indexes, alpha: float = 1.0) -> None:
    """One gather for the k-th rows of all ranges."""
    begin, length = ranges[:, 0], ranges[:, 1] - ranges[:, 0]
    for k in range(int(length.max(initial=0))):
        rows = np.flatnonzero(length > k)
        out[rows] += out.dtype.type(alpha) * src[begin[rows] + k]


@implements("copy_cols", "numpy")
def copy_cols(out: np.ndarray, src: np.ndarray, indexes: Indexes) -> None:
    """One gather of columns."""
    if not src.shape[1]:
        out.fill(0.0)
        return
    out[...] = src[:, indexes]
    out[:, indexes < 0] = 0.0


@implements("add_cols", "numpy")
def add_cols(out: np.ndarray, src: np.ndarray, indexes: Indexes, alpha: float = 1.0) -> None:
    """One gather of columns and an addition."""
    columns = np.flatnonzero(indexes >= 0)
    out[:, columns] += out.dtype.type(alpha) * src[:, indexes[columns]]
