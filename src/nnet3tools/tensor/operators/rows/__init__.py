"""Row and column operations: copies and sums of rows picked by index arrays.

Index arrays are int32; -1 means "no row". They may be on the host on every device: a bound operator
uploads them once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.call import Call, operator_of_formulas
from nnet3tools.tensor.registry import operator


def check_rows(indexes: Array, limit: int, count: int, lowest: int = -1) -> None:
    """Raise ProgramError unless all indexes are in [lowest, limit), and there are `count` of them.

    Only the number of indexes on a GPU is checked.
    """
    if len(indexes) != count:
        raise ProgramError(f"{len(indexes)} row indexes for {count} rows")
    if isinstance(indexes, np.ndarray) and indexes.size and not hasattr(indexes, "get"):
        if int(indexes.max()) >= limit or int(indexes.min()) < lowest:
            raise ProgramError(
                f"row indexes {int(indexes.min())} to {int(indexes.max())} for {limit} rows"
            )


def checked_places(
    which: Array, rows: Array, others: Sequence[Array], count: int
) -> tuple[np.ndarray, np.ndarray]:
    """`which` and `rows` as host arrays of `count` numbers: row rows[i] of others[which[i]].

    A negative number in `which` means no row. ProgramError if a matrix lacks one of the rows.
    """
    which, rows = (np.asarray(x.get() if hasattr(x, "get") else x, np.intp) for x in (which, rows))
    check_rows(which, len(others), count)
    sizes, used = np.array([len(o) for o in others] + [0]), which >= 0
    if (rows[used] >= sizes[which[used]]).any() or (rows[used] < 0).any():
        raise ProgramError("a row operation asks for a row that a matrix has not")
    return which, rows


@operator()
def copy_rows_multi(
    out: Array, sources: Sequence[Array], source_index: Array, row_index: Array
) -> None:
    """Set out[i] to sources[source_index[i]][row_index[i]], or to zero where source_index is -1."""
    for i, (source, row) in enumerate(zip(source_index, row_index, strict=True)):
        out[i] = 0.0 if source < 0 else sources[source][row]


@operator()
def add_rows_multi(
    out: Array, sources: Sequence[Array], source_index: Array, row_index: Array, alpha: float = 1.0
) -> None:
    """Add alpha * sources[source_index[i]][row_index[i]] to out[i], unless source_index is -1."""
    for i, (source, row) in enumerate(zip(source_index, row_index, strict=True)):
        if source >= 0:
            out[i] += alpha * sources[source][row]


@operator_of_formulas(compiled_when_live=False)
def copy_rows(out: Array, src: Array, indexes: Array) -> Iterator[Call]:
    """Set out[i] to src[indexes[i]], to zero where the index is -1. The decorator runs the Call."""
    yield Call.of(copy_rows_multi, out, [src], _zero_or_none(indexes), indexes)


@operator_of_formulas(compiled_when_live=False)
def add_rows(out: Array, src: Array, indexes: Array, alpha: float = 1.0) -> Iterator[Call]:
    """Add alpha * src[indexes[i]] to out[i], unless that is -1. The decorator runs the Call."""
    yield Call.of(add_rows_multi, out, [src], _zero_or_none(indexes), indexes, alpha)


def _zero_or_none(indexes: Array) -> np.ndarray:
    """0, the number of the only source, for each index; -1 where the index is -1."""
    return np.where(np.asarray(indexes) >= 0, 0, -1)


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
    src: Array, dests: Sequence[Array], dest_index: Array, row_index: Array, alpha: float = 1.0
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


@operator_of_formulas(compiled_when_live=False)
def copy_cols(out: Array, src: Array, indexes: Array) -> Iterator[Call]:
    """Set out[:, j] to src[:, indexes[j]], to zero if that is -1. The decorator runs the Call."""
    yield Call.of(copy_rows, out.T, src.T, indexes)
