"""Batch normalisation on NumPy: one pass over the matrix for its sums, one for the result.

Blocks of rows stay in cache while they are worked on. BLAS does the sums, as products of ones with
64 rows at a time in the matrix's own type; these are added up in float64. Blocks depend on shapes
only, and so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from nnet3tools.tensor.numpy_backend.calls import convert, split_groups
from nnet3tools.tensor.numpy_backend.threads import LOCK, TILE_BYTES, Call, register, run_calls
from nnet3tools.tensor.registry import implements

_ADDED = 64
"""Rows that are summed in the matrix's own type."""

_SPREAD_UP_TO = 1024
"""Columns up to which a row is copied for every row of a block: NumPy spends 20 ns on each row of a
broadcast."""

_CANCELLED = 1 / 64
"""Part of the mean square that a variance must be: below it, too many digits have cancelled."""


def _blocks(like: np.ndarray, work: int) -> Iterator[tuple[int, slice]]:
    """Blocks of rows of a matrix, each with its group of registers."""
    rows = max(1, TILE_BYTES // max(1, like.shape[1] * like.itemsize))
    rows = rows // _ADDED * _ADDED or rows
    starts = range(0, len(like), rows)
    for group, some in enumerate(split_groups(starts, work * like.size)):
        for start in some:
            yield group, slice(start, min(start + rows, len(like)))


def _scratch(group: int, index: int, like: np.ndarray) -> np.ndarray:
    """A register as a block, or new memory where a row is larger than a register."""
    if like.nbytes > TILE_BYTES:
        return np.empty(like.shape, like.dtype)
    return register(group, index)[: like.nbytes].view(like.dtype).reshape(like.shape)


def _grouped(calls: Sequence[tuple[int, list[Call]]]) -> list[list[Call]]:
    """The calls of blocks as one list a group."""
    groups: list[list[Call]] = [[] for _ in range(1 + max((g for g, _ in calls), default=-1))]
    for group, some in calls:
        groups[group] += some
    return groups


class _ColumnSums:
    """The columns' sums of a and of a * b, in float64; of a - shift and its square with a shift."""

    def __init__(self, a: np.ndarray, b: np.ndarray, shift: np.ndarray | None = None) -> None:
        self._ones = np.ones(_ADDED, a.dtype)
        blocks = list(_blocks(a, 4))
        counts = [-(-(rows.stop - rows.start) // _ADDED) for _, rows in blocks]
        self._parts = np.empty((2, sum(counts), a.shape[1]), a.dtype)
        calls, at = [], 0
        for (group, rows), count in zip(blocks, counts, strict=True):
            parts = self._parts[:, at : at + count]
            calls.append((group, self._calls(group, a[rows], b[rows], shift, parts)))
            at += count
        self._groups = _grouped(calls)

    def _calls(
        self, group: int, a: np.ndarray, b: np.ndarray, shift: np.ndarray | None, out: np.ndarray
    ) -> list[Call]:
        product = _scratch(group, 0, a)
        if shift is None:
            first: list[Call] = self._sum(a, out[0])
        else:
            first = [(np.subtract, (a, shift, product)), *self._sum(product, out[0])]
            a = b = product
        return [*first, (np.multiply, (a, b, product)), *self._sum(product, out[1])]

    def _sum(self, block: np.ndarray, out: np.ndarray) -> list[Call]:
        """The sums of each `_ADDED` rows of a block."""
        whole, rest = divmod(len(block), _ADDED)
        calls: list[Call] = []
        if whole:
            runs = block[: whole * _ADDED].reshape(whole, _ADDED, block.shape[1])
            calls.append((np.matmul, (self._ones, runs, out[:whole])))
        if rest:
            calls.append((np.matmul, (self._ones[:rest], block[whole * _ADDED :], out[whole])))
        return calls

    def __call__(self) -> np.ndarray:
        """(2, D)."""
        run_calls((), self._groups)
        return self._parts.sum(axis=1, dtype=np.float64)


class _Rows:
    """Rows (count, D) that blocks are combined with; copied for each row of a block if short."""

    def __init__(self, count: int, like: np.ndarray) -> None:
        self.values = np.empty((count, like.shape[1]), like.dtype)
        self.fill: list[Call] = []
        """Calls to make once `values` are set, before those of the blocks."""
        self._whole = list(self.values)
        _, rows = next(_blocks(like, 0), (0, slice(0, 0)))
        if like.shape[1] <= _SPREAD_UP_TO:
            # register 0 of each group is for the blocks
            self._whole = [_scratch(0, 1 + k, like[rows]) for k in range(count)]
            self.fill = [(convert, pair) for pair in zip(self.values, self._whole, strict=True)]

    def of_block(self, rows: int) -> list[np.ndarray]:
        """The rows, in the shape of a block or that of a row."""
        return [row if row.ndim == 1 else row[:rows] for row in self._whole]


@implements("batch_norm", "numpy", binder=True)
def bind_batch_norm(
    out: np.ndarray, stats: np.ndarray, x: np.ndarray, epsilon: float, target_rms: float
) -> Callable[[], None]:
    """Sums of x and x * x give the variance; where it is nearly 0, those of x - mean."""
    sums, rows, count = _ColumnSums(x, x), _Rows(2, x), max(1, len(x))
    calls: list[tuple[int, list[Call]]] = []
    for group, at in _blocks(x, 2):
        mean, scale = rows.of_block(at.stop - at.start)
        subtract: Call = (np.subtract, (x[at], mean, out[at]))
        calls.append((group, [subtract, (np.multiply, (out[at], scale, out[at]))]))
    groups = _grouped(calls)

    def run() -> None:
        with LOCK:
            mean, square = sums() / count
            variance = square - mean * mean
            if (variance < _CANCELLED * square).any():
                shift = mean.astype(x.dtype)
                rest, variance = _ColumnSums(x, x, shift)() / count
                variance -= rest * rest
                mean = shift + rest
                square = variance + mean * mean
            scale = target_rms / np.sqrt(np.maximum(variance, 0.0) + epsilon)
            stats[0], stats[1], stats[2] = mean, square, scale
            rows.values[0], rows.values[1] = mean, scale
            run_calls(rows.fill, groups)

    return run


@implements("batch_norm_backprop", "numpy", binder=True)
def bind_batch_norm_backprop(
    in_deriv: np.ndarray, out_value: np.ndarray, out_deriv: np.ndarray, scale: np.ndarray,
    target_rms: float,
) -> Callable[[], None]:  # fmt: skip
    """Sums of e and z * e, then scale (e - mean of e) - z scale (mean of z e) / target_rms^2."""
    sums, rows, count = _ColumnSums(out_deriv, out_value), _Rows(3, out_deriv), len(out_deriv)
    calls: list[tuple[int, list[Call]]] = []
    for group, at in _blocks(out_deriv, 4):
        mean, inner, factor = rows.of_block(at.stop - at.start)
        z, e, slope = out_value[at], out_deriv[at], in_deriv[at]
        product = _scratch(group, 0, e)
        # in_deriv may be either operand: what is read is read before it is written
        block: list[Call] = [(np.multiply, (z, inner, product))]
        block += [(np.subtract, (e, mean, slope)), (np.multiply, (slope, factor, slope))]
        calls.append((group, [*block, (np.subtract, (slope, product, slope))]))
    groups = _grouped(calls)

    def run() -> None:
        with LOCK:
            mean, inner = sums() / max(1, count)
            rows.values[0], rows.values[2] = mean, scale
            rows.values[1] = inner * scale / target_rms**2
            run_calls(rows.fill, groups)

    return run
