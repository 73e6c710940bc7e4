"""Dependencies of components whose output at t uses inputs at a fixed set of times around t.

Shared by TDNNs, time-height convolution, attention and statistics: the inputs that an output may
use, those that it requires, and the order "by n, then x, then t".
"""

from __future__ import annotations

import numpy as np

from nnet3tools.errors import RequestError
from nnet3tools.nnet.indexes import BoolArray, IndexArray, IntArray, KeyArray, sorted_unique

# 20 bits for n, 15 for x, 28 for t, as in nnet/indexes.py, but t is least significant.
_T_BITS, _X_BITS = 28, 15
_T_BIAS, _X_BIAS = 1 << (_T_BITS - 1), 1 << (_X_BITS - 1)


def at_shifts(indexes: IndexArray, shifts: IntArray) -> tuple[IndexArray, IntArray]:
    """For each of N Indexes, the K Indexes at t + shift, in CSR form: (N * K, 3) and (N + 1,)."""
    inputs = np.repeat(indexes, len(shifts), axis=0)
    inputs[:, 1] += np.tile(np.asarray(shifts, np.int32), len(indexes))
    return inputs, np.arange(len(indexes) + 1, dtype=np.int32) * np.int32(len(shifts))


def used_if_required(available: BoolArray, required: BoolArray) -> tuple[BoolArray, BoolArray]:
    """Flags of outputs that have all required inputs (N,), and of the inputs they use (N * K,).

    `available` is (N * K,): which of an output's K inputs exist; `required` (K,).
    """
    per_row = available.reshape(-1, len(required))
    computable = np.asarray(per_row[:, required].all(axis=1))
    return computable, (per_row & computable[:, None]).ravel()


def used_if_any(available: BoolArray, width: int) -> tuple[BoolArray, BoolArray]:
    """Flags, (N,), of outputs that have any of their `width` inputs, and `available` itself.

    `available` (N * width,) flags the inputs that exist; the outputs use all of them.
    """
    return np.asarray(available.reshape(-1, width).any(axis=1)), available


def nxt_keys(n: IntArray, x: IntArray, t: IntArray) -> KeyArray:
    """One int64 key (N,) for each Index, which sorts by n, then x, then t (Kaldi's IndexLessNxt).

    A t out of range is clipped, so that it may stand for the end of a window.
    """
    if len(x) and (int(np.max(np.abs(x))) >= _X_BIAS or int(np.max(n)) >> 20 or int(np.min(n)) < 0):
        raise RequestError(
            f"an index is out of range: n must be in [0, {1 << 20}), |x| < {_X_BIAS}"
        )
    biased_t = np.clip(np.asarray(t, np.int64) + _T_BIAS, 0, (1 << _T_BITS) - 1)
    high = (np.asarray(n, np.int64) << _X_BITS) | (np.asarray(x, np.int64) + _X_BIAS)
    return (high << _T_BITS) | biased_t


def nxt_order(indexes: IndexArray) -> IndexArray:
    """The Indexes sorted by n, then x, then t."""
    return indexes[np.lexsort((indexes[:, 1], indexes[:, 2], indexes[:, 0]))]


def window_ranges(
    name: str, rows: IndexArray, centres: IndexArray, first: IntArray, last: IntArray, period: int
) -> IntArray:
    """For each of N centers, the range (start, stop) of `rows` with t in its window; (N, 2).

    The window of center i has its n and x, and t from first[i] to last[i].

    RequestError, with the component's `name`, unless `rows` are sorted by n, x, t, times are
    multiples of `period` from the windows' first times, and no window is empty.
    """
    keys = nxt_keys(rows[:, 0], rows[:, 2], rows[:, 1])
    if (np.diff(keys) <= 0).any():
        raise RequestError(f"{name} needs rows ordered by n, then x, then t, none twice")
    n, x = centres[:, 0], centres[:, 2]
    begin = np.searchsorted(keys, nxt_keys(n, x, first), side="left")
    end = np.searchsorted(keys, nxt_keys(n, x, last), side="right")
    if period > 1 and len(sorted_unique(np.concatenate([rows[:, 1], first]) % period)) > 1:
        raise RequestError(f"{name} needs all times to be multiples of its period {period}")
    if (empty := end <= begin).any():
        n, t, x = centres[int(np.flatnonzero(empty)[0])]
        raise RequestError(f"{name}: no frame in the window of (n={n}, t={t}, x={x})")
    return np.stack([begin, end], axis=1).astype(np.int32)
