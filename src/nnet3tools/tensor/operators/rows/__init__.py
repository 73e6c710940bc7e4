"""Row and column operations: copies and sums of rows picked by index arrays.

Index arrays are int32; -1 means "no row". They may be on the host on every device: a bound operator
uploads them once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator


@operator()
def copy_rows(out: Array, src: Array, indexes: Array) -> None:
    """Set out[i] to src[indexes[i]], or to zero where the index is -1."""
    for i, row in enumerate(indexes):
        out[i] = 0.0 if row < 0 else src[row]


@operator()
def add_rows(out: Array, src: Array, indexes: Array, alpha: float = 1.0) -> None:
    """Add alpha * src[indexes[i]] to out[i], unless the index is -1."""
    for i, row in enumerate(indexes):
        if row >= 0:
            out[i] += alpha * src[row]


@operator()
def copy_rows_multi(
    out: Array, sources: Sequence[Array], source_index: Array, row_index: Array
) -> None:
    """Set out[i] to sources[source_index[i]][row_index[i]], or to zero where source_index is -1."""
    for i, (source, row) in enumerate(zip(source_index, row_index, strict=True)):
        out[i] = 0.0 if source < 0 else sources[source][row]


@operator()
def add_rows_multi(
    out: Array,
    sources: Sequence[Array],
    source_index: Array,
    row_index: Array,
    alpha: float = 1.0,
) -> None:
    """Add alpha * sources[source_index[i]][row_index[i]] to out[i], unless source_index is -1."""
    for i, (source, row) in enumerate(zip(source_index, row_index, strict=True)):
        if source >= 0:
            out[i] += alpha * sources[source][row]


@operator(writes=("dests",))
def copy_to_rows_multi(
    src: Array, dests: Sequence[Array], dest_index: Array, row_index: Array
) -> None:
    """Set dests[dest_index[i]][row_index[i]] to src[i], unless dest_index is -1; no row twice."""
    for i, (dest, row) in enumerate(zip(dest_index, row_index, strict=True)):
        if dest >= 0:
            dests[dest][row] = src[i]


@operator(writes=("dests",))
def add_to_rows_multi(
    src: Array,
    dests: Sequence[Array],
    dest_index: Array,
    row_index: Array,
    alpha: float = 1.0,
) -> None:
    """Add alpha * src[i] to dests[dest_index[i]][row_index[i]], unless dest_index is -1."""
    for i, (dest, row) in enumerate(zip(dest_index, row_index, strict=True)):
        if dest >= 0:
            dests[dest][row] += alpha * src[i]


@operator()
def add_row_ranges(out: Array, src: Array, ranges: Array, alpha: float = 1.0) -> None:
    """Add alpha * the sum of src[b:e] to out[i], where (b, e) = ranges[i]; nothing if e <= b."""
    for i, (begin, end) in enumerate(ranges):
        if end > begin:
            out[i] += alpha * np.sum(src[begin:end], axis=0)


add_row_ranges.compiled_when_live = True


@operator()
def copy_cols(out: Array, src: Array, indexes: Array) -> None:
    """Set out[:, j] to src[:, indexes[j]], or to zero where the index is -1."""
    for j, column in enumerate(indexes):
        out[:, j] = 0.0 if column < 0 else src[:, column]
