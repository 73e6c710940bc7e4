"""Moves of rows by index arrays on NumPy.

Programs move rows in regular patterns (a shift by a few frames in every sequence). Binding
therefore analyses the index arrays: two nested arithmetic progressions become one copy between
strided views. Other rows are gathered by blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import as_strided

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.element import element

Run = Callable[[], None]

_BLOCK = 1 << 15
_add_scaled = element("_1 += _2 * _3")


def _block_length(rows: np.ndarray) -> int:
    """The length of the longest arithmetic progression at the start of `rows`."""
    steps = np.diff(rows)
    breaks = np.flatnonzero(steps != steps[:1])
    return int(breaks[0]) + 1 if len(breaks) else len(rows)


def _pattern(rows: np.ndarray, length: int) -> tuple[int, int] | None:
    """(step between blocks, step within a block) if `rows` is regular blocks of `length` numbers.

    It is None unless all blocks have the same step inside, and begin at equal distances.
    """
    blocks = rows.reshape(-1, length)
    outer = int(blocks[1, 0] - blocks[0, 0]) if len(blocks) > 1 else 0
    inner = int(blocks[0, 1] - blocks[0, 0]) if length > 1 else 0
    starts = blocks[0, 0] + outer * np.arange(len(blocks))
    regular = starts[:, None] + inner * np.arange(length)
    return (outer, inner) if np.array_equal(regular, blocks) else None


def _view(
    array: np.ndarray, first: int, steps: tuple[int, int], shape: tuple[int, int]
) -> np.ndarray:
    down = array.strides[0]
    strides = (steps[0] * down, steps[1] * down, *array.strides[1:])
    return as_strided(array[first:], (*shape, *array.shape[1:]), strides)


def _regular_views(
    out: np.ndarray, out_rows: np.ndarray, src: np.ndarray, src_rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Views of out and src that one assignment moves all rows between; None if impossible."""
    length = min(_block_length(out_rows), _block_length(src_rows))
    if len(out_rows) % length:
        return None
    to, of = _pattern(out_rows, length), _pattern(src_rows, length)
    if to is None or of is None:
        return None
    shape = (len(out_rows) // length, length)
    return (
        _view(out, int(out_rows[0]), to, shape),
        _view(src, int(src_rows[0]), of, shape),
    )


def _check_rows(array: np.ndarray, rows: np.ndarray, what: str) -> None:
    if len(rows) and (rows.min() < 0 or rows.max() >= len(array)):
        raise ProgramError(
            f"{what}: row {rows.min() if rows.min() < 0 else rows.max()} of a matrix with "
            f"{len(array)} rows"
        )


def transfer(
    out: np.ndarray, out_rows: np.ndarray, src: np.ndarray, src_rows: np.ndarray,
    alpha: float | None,
) -> list[Run]:  # fmt: skip
    """Steps that set out[out_rows] to src[src_rows], or add alpha times it if alpha is given."""
    _check_rows(out, out_rows, "output of a row operation")
    _check_rows(src, src_rows, "input of a row operation")
    if not len(out_rows) or not out[0].size:
        return []
    adds_twice = alpha is not None and _has_repeated(out_rows)
    views = None if adds_twice else _regular_views(out, out_rows, src, src_rows)
    if views is not None:
        to, of = views
        if alpha is None:
            return [functools.partial(np.copyto, to, of, casting="unsafe")]
        if alpha == 1.0:
            return [functools.partial(np.add, to, of, to, casting="unsafe")]
        return [_add_scaled.bind(to, of, float(alpha))]
    block: Callable[..., None] = _copy_block if alpha is None else _add_block
    if adds_twice:
        block = _add_repeated
    size = max(1, _BLOCK // out[0].size)
    parts = [slice(at, at + size) for at in range(0, len(out_rows), size)]
    return [
        functools.partial(block, out, _as_slice(out_rows[p]), src, src_rows[p], alpha)
        for p in parts
    ]


def _has_repeated(rows: np.ndarray) -> bool:
    """Whether a number repeats. (np.unique would load numpy.ma, which takes 16 ms.)"""
    ordered = np.sort(rows)
    return bool((ordered[1:] == ordered[:-1]).any())


def _as_slice(rows: np.ndarray) -> np.ndarray | slice:
    """Consecutive rows as a slice; other rows unchanged."""
    first, last = int(rows[0]), int(rows[-1])
    consecutive = last - first == len(rows) - 1 and bool((np.diff(rows) == 1).all())
    return slice(first, last + 1) if consecutive else rows


def _copy_block(
    out: np.ndarray, to: np.ndarray | slice, src: np.ndarray, of: np.ndarray, alpha: None
) -> None:
    whole = isinstance(to, slice) and src.flags.c_contiguous and out.flags.c_contiguous
    if whole and out.dtype == src.dtype:
        # with "clip" np.take needs no buffer; the indexes were checked at binding
        np.take(src, of, 0, out[to], "clip")
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
