"""Row and column operations on NumPy: rows are moved by blocks that stay in the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import numpy as np
from numpy.lib.stride_tricks import as_strided

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.aggregate import aggregate
from nnet3tools.tensor.basics import add
from nnet3tools.tensor.call import in_turn
from nnet3tools.tensor.operators.rows import add_rows, checked_places
from nnet3tools.tensor.registry import implements

Run = Callable[[], None]

_SHORT = 4
"""Ranges of at most so many rows are added up one row of each range at a time."""
_BLOCK = 1 << 15
_sum = aggregate("_1", "sum", axis=1)


def _transfer(
    out: np.ndarray, out_rows: np.ndarray, src: np.ndarray, src_rows: np.ndarray,
    alpha: float | None,
) -> list[Run]:  # fmt: skip
    """Steps that set out[out_rows] to src[src_rows], or add alpha times it if alpha is given."""
    if not len(out_rows) or not out[0].size:
        return []
    move: Callable[..., None] = _copy_block if alpha is None else _add_block
    to, of = _as_slice(out_rows), _as_slice(src_rows)
    if to is not None:
        out = out[to]
        if of is not None:
            src = src[of]
            if alpha is None:
                return [partial(np.copyto, out, src, casting="unsafe")]
            return [add.bind(out, src, alpha)]
    elif alpha is not None and _has_repeated(out_rows):
        move = _add_repeated
    size = max(1, _BLOCK // out[0].size)
    parts = [slice(at, at + size) for at in range(0, len(out_rows), size)]
    return [
        partial(move, out, p if to is not None else out_rows[p], src, src_rows[p], alpha)
        for p in parts
    ]


def _has_repeated(rows: np.ndarray) -> bool:
    """Whether a number repeats. (np.unique would load numpy.ma, which takes 16 ms.)"""
    ordered = np.sort(rows)
    return bool((ordered[1:] == ordered[:-1]).any())


def _as_slice(rows: np.ndarray) -> slice | None:
    """Rows at equal distances, in ascending order, as a slice; None for other rows."""
    first, last = int(rows[0]), int(rows[-1])
    step = int(rows[1]) - first if len(rows) > 1 else 1
    is_regular = step > 0 and bool((np.diff(rows) == step).all())
    return slice(first, last + 1, step) if is_regular else None


def _copy_block(
    out: np.ndarray, to: np.ndarray | slice, src: np.ndarray, of: np.ndarray, alpha: None
) -> None:
    target = out[to] if isinstance(to, slice) else None
    whole = target is not None and target.flags.c_contiguous and src.flags.c_contiguous
    if whole and out.dtype == src.dtype:
        # with "clip" np.take needs no buffer; the indexes were checked at binding
        np.take(src, of, 0, target, "clip")
    else:
        out[to] = src[of]


def _add_block(
    out: np.ndarray, to: np.ndarray | slice, src: np.ndarray, of: np.ndarray, alpha: float
) -> None:
    block = src[of]
    if alpha != 1.0:
        np.multiply(block, block.dtype.type(alpha), out=block)
    out[to] += block


def _add_repeated(
    out: np.ndarray, to: np.ndarray, src: np.ndarray, of: np.ndarray, alpha: float
) -> None:
    np.add.at(out, to, src.dtype.type(alpha) * src[of])


def _bind(
    adds: bool, to_others: bool, matrix: np.ndarray, others: Sequence[np.ndarray],
    part_index: np.ndarray, row_index: np.ndarray, alpha: float = 1.0,
) -> Run:  # fmt: skip
    """A step that moves rows between row i of `matrix` and row row_index[i] of a part of `others`.

    The part is others[part_index[i]]. Rows go to `matrix`, or `to_others`; they are multiplied by
    alpha and added with `adds`, else copied. Rows of `matrix` without a part are set to zero if
    others are copied to it.
    """
    which, rows = checked_places(part_index, row_index, others, len(matrix))
    factor = alpha if adds else None
    steps, missing = list[Run](), np.flatnonzero(which < 0)
    if len(missing) and not adds and not to_others:
        rows_of_zeros = missing if len(missing) < len(matrix) else slice(None)
        steps.append(partial(matrix.__setitem__, rows_of_zeros, 0.0))
    groups = [(0, np.arange(len(which)))]
    if which.any() or not which.size:
        order = np.argsort(which, kind="stable")
        parts, starts = np.unique(which[order], return_index=True)
        groups = list(zip(parts.tolist(), np.split(order, starts[1:]), strict=False))
    for part, at in groups:
        if part < 0:
            continue
        if to_others:
            steps += _transfer(others[part], rows[at], matrix, at, factor)
        else:
            steps += _transfer(matrix, at, others[part], rows[at], factor)
    return in_turn(steps)


for _verb, _adds in (("copy", False), ("add", True)):
    _register = partial(implements, device="numpy", binder=True)
    _register(f"{_verb}_rows_multi")(partial(_bind, _adds, False))
    _register(f"{_verb}_to_rows_multi")(partial(_bind, _adds, True))


@implements("add_row_ranges", "numpy", binder=True)
def bind_add_row_ranges(
    out: np.ndarray, src: np.ndarray, ranges: np.ndarray, alpha: float = 1.0
) -> Run:
    """A callable that runs `add_row_ranges`, by one strided sum if the ranges are regular.

    Else many short ranges are added up by their k-th rows, the others by reduceat, which takes
    several times as long for each element.
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
            return add.bind(out, stack[:, 0], alpha)
        return cast(Run, _sum.bind(out, stack, alpha=alpha, beta=1.0))
    if longest > max(_SHORT, len(used)):
        rows = max(1, _BLOCK // max(1, out.shape[1]))
        blocks = [used[at : at + rows] for at in range(0, len(used), rows)]
        return partial(_reduce, out, src, [(b, begin[b], end[b]) for b in blocks], alpha)
    runs = [
        add_rows.bind(out, src, np.where(end - begin > k, begin + k, -1), alpha)
        for k in range(longest)
    ]
    return in_turn(runs)


def _equal_ranges(src: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray | None:
    """A view (range, row of the range, column) if ranges are equally long and spaced; else None."""
    length, step = int(end[0] - begin[0]), int(begin[1] - begin[0]) if len(begin) > 1 else 0
    regular = begin[0] + step * np.arange(len(begin))
    if not (np.array_equal(begin, regular) and np.array_equal(end, regular + length)):
        return None
    down = src.strides[0]
    shape = (len(begin), length, src.shape[1])
    return as_strided(src[begin[0] :], shape, (step * down, down, src.strides[1]))


def _reduce(
    out: np.ndarray,
    src: np.ndarray,
    blocks: list[tuple[np.ndarray, np.ndarray, np.ndarray]],
    alpha: float,
) -> None:
    """Add alpha * sums of src[begin:end] to rows of out; each block is (rows, begins, ends)."""
    last = len(src) - 1
    for rows, begin, end in blocks:
        # reduceat takes indexes below len(src) only: a range to the end is stopped one row short,
        # and the last row added; reduceat does so itself if that row is the whole range
        short = end > last
        indexes = np.stack([begin, np.where(short, last, end)], axis=1).ravel()
        sums = np.add.reduceat(src, indexes, axis=0)[::2]
        sums[short & (begin < last)] += src[last]
        if alpha != 1.0:
            np.multiply(sums, out.dtype.type(alpha), out=sums)
        out[rows] += sums
