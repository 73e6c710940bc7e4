"""Splitting a sum of rows into columns, each of which is one command.

A location is a (submatrix, row) pair. "Rows i of the output is the sum of these locations" is a
pair of arrays (rows, terms), submatrices and rows, padded at the end of each row with -1. It is
split into columns with one location (or none, -1) for each row, so that as many columns as possible
use one submatrix only. For the backward direction, rows of a column must also not add to the same
location at the same time (Kaldi's SplitLocations and SplitLocationsBackward).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools.graph.computation_graph import all_true, is_increasing
from nnet3tools.nnet.indexes import BoolArray, IntArray


class Column(NamedTuple):
    """One location (submatrix and row, or none) for each row of an output.

    `submatrix` is the submatrix of all locations, or 0 if there are several. `submatrices` and
    `rows`, both (rows,), are -1 where a row has no location.
    """

    submatrix: int
    submatrices: IntArray
    rows: IntArray


def push_left(submatrices: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Both arrays, (rows, terms), with terms of submatrix -1 moved to the end of each row.

    Columns without any term are then dropped.
    """
    present = submatrices >= 0
    if all_true(present):
        return submatrices, rows
    # Often whole columns are padding: terms of another scale, or terms without a derivative.
    columns = np.count_nonzero(present, axis=0) > 0
    if not all_true(columns):
        present, submatrices, rows = present[:, columns], submatrices[:, columns], rows[:, columns]
        if all_true(present):
            return submatrices, rows
    rows = np.where(present, rows, np.int32(-1))
    gaps = np.flatnonzero((present[:, 1:] > present[:, :-1]).any(axis=1))
    if len(gaps):
        order = np.argsort(~present[gaps], axis=1, kind="stable")
        submatrices = submatrices.copy()
        submatrices[gaps] = np.take_along_axis(submatrices[gaps], order, axis=1)
        rows[gaps] = np.take_along_axis(rows[gaps], order, axis=1)
    width = int(np.count_nonzero(present, axis=1).max(initial=0))
    submatrices, rows = submatrices[:, :width], rows[:, :width]
    return submatrices, rows


def split_locations(submatrices: IntArray, rows: IntArray) -> list[Column]:
    """Split a sum into columns with one location (submatrix, row) for each row of the output.

    The two arrays, (rows, terms), have the locations of all terms; -1 pads the end of a row.
    """
    columns = list[Column]()
    while len(submatrices) and submatrices.shape[1]:
        if (last := _columns_as_they_are(submatrices, rows)) is not None:
            return columns + last
        frequent = _frequent_submatrices(submatrices, len(submatrices) // 2)
        if not frequent:
            return columns + [_column(s, r) for s, r in zip(submatrices.T, rows.T, strict=True)]
        taken, left = _take_frequent(submatrices, rows, frequent)
        columns += taken
        submatrices, rows = push_left(left, rows)
    return columns


def _columns_as_they_are(submatrices: IntArray, rows: IntArray) -> list[Column] | None:
    """One Column per term if there is one term, or each has a submatrix of its own; else None.

    Both arrays: (rows, terms). The order is reversed, as Kaldi's hash table lists few submatrices.
    """
    width = submatrices.shape[1]
    constant = (submatrices == submatrices[:1]).all(axis=0).tolist()
    first = submatrices[0].tolist()
    if width == 1:
        if constant[0] and first[0] >= 0:
            return [Column(first[0], submatrices[:, 0], rows[:, 0])]
        return [_column(submatrices[:, 0], rows[:, 0])]
    if all(constant) and len(set(first)) == width and -1 not in first:
        return [Column(first[i], submatrices[:, i], rows[:, i]) for i in range(width - 1, -1, -1)]
    return None


def _take_frequent(
    submatrices: IntArray, rows: IntArray, frequent: list[int]
) -> tuple[list[Column], IntArray]:
    """(a Column for each submatrix in `frequent`, the submatrices of the remaining terms).

    A Column takes one term of each row that has its submatrix; -1 replaces it in the second result.
    """
    columns = []
    left = submatrices.copy()
    for submatrix in frequent:
        hit = submatrices == submatrix
        has, column_of_row = hit.any(axis=1), hit.argmax(axis=1)
        of_column = np.where(
            has, np.take_along_axis(rows, column_of_row[:, None], axis=1)[:, 0], -1
        )
        columns.append(
            Column(submatrix, np.where(has, np.int32(submatrix), np.int32(-1)), of_column)
        )
        left[np.flatnonzero(has), column_of_row[has]] = -1
    return columns, left


def _frequent_submatrices(submatrices: IntArray, cutoff: int) -> list[int]:
    """Submatrices that occur more than `cutoff` times, in reverse order of first occurrence."""
    flat = submatrices.ravel()
    flat = flat[flat >= 0]
    values, first, counts = np.unique(flat, return_index=True, return_counts=True)
    frequent = counts > cutoff
    order = np.argsort(-first[frequent], kind="stable")
    return values[frequent][order].tolist()


def _column(submatrices: IntArray, rows: IntArray) -> Column:
    largest = int(submatrices.max(initial=-1))
    single = all_true((submatrices == largest) | (submatrices == -1))
    return Column(largest if single else 0, submatrices, rows)


def reversible_columns(column: Column) -> list[Column]:
    """Parts of a column such that the backward direction can add all rows of a part at once.

    In a part with one submatrix, rows with the same location are neighbours, not counting rows
    without location. In a part with several submatrices, no location is repeated.
    """
    if column.submatrix == -1:
        return []
    if column.submatrix > 0:
        return _split_by(column, _run_number(column.rows))
    codes = column.submatrices.astype(np.int64) << 32 | column.rows
    codes[column.submatrices < 0] = -1
    return _split_by(column, _occurrence(codes))


def _split_by(column: Column, number: NDArray[np.intp] | None) -> list[Column]:
    """A column for each value 0, 1, ... of `number`, with the rows that have it; None: no split."""
    if number is None:
        return [column]
    return [
        _column(
            np.where(number == i, column.submatrices, np.int32(-1)),
            np.where(number == i, column.rows, np.int32(-1)),
        )
        for i in range(int(number.max()) + 1)
    ]


def row_runs(rows: IntArray) -> tuple[IntArray, NDArray[np.intp], NDArray[np.intp]]:
    """Runs of equal rows other than -1: (the row, first position, last position + 1) of each."""
    change = (rows[1:] != rows[:-1]).nonzero()[0] + 1
    begins = np.concatenate([[0], change])
    ends = np.concatenate([change, [len(rows)]])
    values = rows[begins]
    if int(values.min()) < 0:
        present = values >= 0
        values, begins, ends = values[present], begins[present], ends[present]
    return values, begins, ends


def _run_number(rows: IntArray) -> NDArray[np.intp] | None:
    """For each row, how many runs of its value came earlier (-1 for -1); None if none ever did."""
    values, begins, ends = row_runs(rows)
    if (occurrence := _occurrence(values)) is None:
        return None
    out = np.full(len(rows), -1, np.intp)
    out[rows >= 0] = np.repeat(occurrence, ends - begins)
    return out


def _occurrence(values: NDArray[np.integer]) -> NDArray[np.intp] | None:
    """For each value, how many equal values precede it (-1 if negative); None if all differ."""
    if _no_repeats(values, values >= 0):
        return None
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.concatenate([[0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1])
    lengths = np.diff(np.append(starts, len(values)))
    out = np.empty(len(values), np.intp)
    out[order] = np.arange(len(values)) - np.repeat(starts, lengths)
    out[values < 0] = -1
    return out


def _no_repeats(values: NDArray[np.integer], present: BoolArray) -> bool:
    """Whether the nonnegative values that `present` flags are all different."""
    if not all_true(present):
        values = values[present]
    if is_increasing(values):
        return True
    ordered = np.sort(values)
    return is_increasing(ordered)
