"""Sums of ranges of rows on NumPy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.lib.stride_tricks import as_strided

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.aggregate import aggregate
from nnet3tools.tensor.element import element
from nnet3tools.tensor.plain.rows import bind_add_rows
from nnet3tools.tensor.registry import implements

_SHORT = 4
"""Up to this length ranges are added a row at a time: each k-th row of all ranges in one go."""

_BLOCK = 1 << 15
_sum = aggregate("_1", "sum", axis=1)
_add = element("_1 += _2 * _3")


@implements("add_row_ranges", "numpy", binder=True)
def bind_add_row_ranges(
    out: np.ndarray, src: np.ndarray, ranges: np.ndarray, alpha: float = 1.0
) -> Callable[[], None]:
    """One strided sum if ranges are regular; the k-th rows of all ranges in one gather if there are
    many; else reduceat, which is several times slower an element.
    """
    begin, end = (np.asarray(ranges, np.intp).reshape(-1, 2)[:, i] for i in (0, 1))
    used = np.flatnonzero(end > begin)
    if len(begin) != len(out):
        raise ProgramError(f"a matrix of {len(out)} rows was given {len(begin)} ranges of rows")
    if not len(used):
        return lambda: None
    if begin[used].min() < 0 or end[used].max() > len(src):
        raise ProgramError(f"a range of rows exceeds a matrix of {len(src)} rows")
    longest = int((end - begin)[used].max())
    if len(used) == len(out) and (stack := _equal_ranges(src, begin, end)) is not None:
        if longest == 1:
            # Sums would take memory twice the matrix's, for as long as the process runs.
            return _add.bind(out, stack[:, 0], alpha)
        return cast(Callable[[], None], _sum.bind(out, stack, alpha=alpha, beta=1.0))
    if longest > max(_SHORT, len(used)):
        rows = max(1, _BLOCK // max(1, out.shape[1]))
        blocks = [used[at : at + rows] for at in range(0, len(used), rows)]
        return functools.partial(_reduce, out, src, [(b, begin[b], end[b]) for b in blocks], alpha)
    runs = [
        bind_add_rows(out, src, np.where(end - begin > k, begin + k, -1), alpha)
        for k in range(longest)
    ]
    return functools.partial(_run, runs)


def _equal_ranges(src: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray | None:
    """The ranges as a view (range, row within, column), if all are equally long and spaced."""
    length, step = int(end[0] - begin[0]), int(begin[1] - begin[0]) if len(begin) > 1 else 0
    regular = begin[0] + step * np.arange(len(begin))
    if not (np.array_equal(begin, regular) and np.array_equal(end, regular + length)):
        return None
    down = src.strides[0]
    shape = (len(begin), length, src.shape[1])
    return as_strided(src[begin[0] :], shape, (step * down, down, src.strides[1]))


def _run(runs: list[Callable[[], None]]) -> None:
    for run in runs:
        run()


def _reduce(
    out: np.ndarray,
    src: np.ndarray,
    blocks: list[tuple[np.ndarray, np.ndarray, np.ndarray]],
    alpha: float,
) -> None:
    """reduceat sums from each index to the next: every other one of its sums is a range."""
    last = len(src) - 1
    for rows, begin, end in blocks:
        # an index must be below len(src): a range to the very end is stopped one row short, which
        # reduceat repairs by itself where the range is that one row
        short = end > last
        indexes = np.stack([begin, np.where(short, last, end)], axis=1).ravel()
        sums = np.add.reduceat(src, indexes, axis=0)[::2]
        sums[short & (begin < last)] += src[last]
        if alpha != 1.0:
            np.multiply(sums, out.dtype.type(alpha), out=sums)
        out[rows] += sums
