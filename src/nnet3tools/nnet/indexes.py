"""Index arrays: int32 arrays of shape (N, 3) with columns n (sequence), t (time), x (extra).

Kaldi hashes single Indexes (nnet-common.h). Here sets and look-ups use packed int64 keys, whose
order is Kaldi's order of Indexes: t first, then x, then n.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnet3tools.errors import RequestError

IndexArray = NDArray[np.int32]
IntArray = NDArray[np.int32]
KeyArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

NO_TIME = np.iinfo(np.int32).min
"""Kaldi's kNoTime: the t of an Index without a time, made by ReplaceIndex or pooling."""

# 28 bits for t, 15 for x, 20 for n allow 134 million frames in each direction, x up to 16383 and a
# million sequences. Sorting and searching int64 is several times faster than structured keys.
_T_BITS, _X_BITS, _N_BITS = 28, 15, 20
_T_BIAS, _X_BIAS = 1 << (_T_BITS - 1), 1 << (_X_BITS - 1)


def make_indexes(n: ArrayLike, t: ArrayLike, x: ArrayLike = 0) -> IndexArray:
    """Broadcast n, t and x (numbers or arrays) to one index array of shape (N, 3)."""
    columns = np.broadcast_arrays(n, t, x)
    return np.stack([np.ravel(c) for c in columns], axis=1).astype(np.int32)


def pack(indexes: IndexArray) -> KeyArray:
    """Keys (N,) of an index array in Kaldi's order; RequestError for an Index out of range."""
    n, t, x = (indexes[:, i].astype(np.int64) for i in range(3))
    no_time = t == NO_TIME
    biased_t = np.where(no_time, 0, t + _T_BIAS)
    biased_x = x + _X_BIAS
    bad = (
        (biased_t >> _T_BITS)
        | (biased_x >> _X_BITS)
        | (n >> _N_BITS)
        | (~no_time & (biased_t <= 0))
    )
    if bad.any():
        row = indexes[int(np.flatnonzero(bad)[0])]
        raise RequestError(
            f"index (n={row[0]}, t={row[1]}, x={row[2]}) is out of range: n must be in "
            f"[0, {1 << _N_BITS}), |t| below {_T_BIAS}, |x| below {_X_BIAS}"
        )
    return (((biased_t << _X_BITS) | biased_x) << _N_BITS) | n


def unpack(keys: KeyArray) -> IndexArray:
    """The index array of keys that `pack` made."""
    out = np.empty((len(keys), 3), np.int32)
    out[:, 0] = keys & ((1 << _N_BITS) - 1)
    out[:, 2] = ((keys >> _N_BITS) & ((1 << _X_BITS) - 1)) - _X_BIAS
    biased_t = keys >> (_N_BITS + _X_BITS)
    out[:, 1] = np.where(biased_t == 0, NO_TIME, biased_t - _T_BIAS)
    return out


def shift_time(keys: KeyArray, offset: int) -> KeyArray:
    """Keys of the Indexes `offset` frames later; Indexes without a time stay unchanged."""
    if offset == 0 or len(keys) == 0:
        return keys
    shift = _N_BITS + _X_BITS
    first, last = int(keys.min()) >> shift, int(keys.max()) >> shift
    if first > 0 and 0 < first + offset and last + offset < 1 << _T_BITS:
        return keys + (offset << shift)
    indexes = unpack(keys)
    moved = indexes[:, 1] != NO_TIME
    times = indexes[moved, 1].astype(np.int64) + offset
    indexes[moved, 1] = np.clip(times, NO_TIME + 1, np.iinfo(np.int32).max)
    return pack(indexes)


def repeated_beyond(known: KeyArray, new: KeyArray, first: int, last: int, most: int) -> KeyArray:
    """Extrapolate Indexes that a recurrence requests further and further in time.

    `known` and `new` are sorted keys. `new` extends the time range of `known` to one side, by d
    frames. Returns copies of `new`, shifted by d, 2 d, ... frames to that side, sorted: at most
    `most`, until they pass frame `first` or `last`. Empty if `new` extends nothing or passed it.
    """
    if len(known) == 0:
        return new[:0]
    shift = _N_BITS + _X_BITS
    begin, end = int(new[0]) >> shift, int(new[-1]) >> shift
    known_begin, known_end = int(known[0]) >> shift, int(known[-1]) >> shift
    first, last = first + _T_BIAS, last + _T_BIAS
    if first < begin <= end < known_begin:
        step = known_begin - begin
        count = min((begin - first) // step + 2, most, (begin - 1) // step)
        offsets = step * np.arange(-count, 0)
    elif known_end < begin <= end < last:
        step = end - known_end
        count = min((last - end) // step + 2, most, ((1 << _T_BITS) - 1 - end) // step)
        offsets = step * np.arange(1, count + 1)
    else:
        return new[:0]
    return (new + (offsets[:, None] << shift)).ravel()


def find_sorted(sorted_keys: KeyArray, keys: KeyArray) -> NDArray[np.intp]:
    """Position of each of `keys` in `sorted_keys`; -1 if absent."""
    if len(sorted_keys) == 0:
        return np.full(len(keys), -1, np.intp)
    at = np.searchsorted(sorted_keys, keys)
    at[at == len(sorted_keys)] = 0
    return np.where(sorted_keys[at] == keys, at, -1)


class IndexSet:
    """A set of Indexes with vectorized look-up."""

    __slots__ = ("_keys", "_positions")

    def __init__(self, indexes: IndexArray) -> None:
        keys = pack(indexes)
        self._positions = np.argsort(keys, kind="stable")
        self._keys = keys[self._positions]

    def __len__(self) -> int:
        return len(self._keys)

    def contains(self, indexes: IndexArray) -> BoolArray:
        """Whether the set has each of the Indexes, shape (N,)."""
        return find_sorted(self._keys, pack(indexes)) >= 0

    def find(self, indexes: IndexArray) -> IntArray:
        """Row of each Index in the array that made the set (the first if repeated), or -1."""
        at = find_sorted(self._keys, pack(indexes))
        return np.where(at >= 0, self._positions[at], -1).astype(np.int32)


def all_true(mask: BoolArray) -> bool:
    """Whether all elements are True; several times faster than mask.all() on short masks."""
    return b"\0" not in mask.tobytes()


def is_increasing(values: NDArray[Any]) -> bool:
    """Whether each value is larger than the one before."""
    return all_true(values[1:] > values[:-1])


def sorted_unique(values: NDArray[Any]) -> NDArray[Any]:
    """The distinct values in increasing order (the same array if it has this form already).

    np.unique would import numpy.ma, which takes 10 ms at each start.
    """
    if len(values) < 2 or is_increasing(values):
        return values
    ordered = np.sort(values)
    keep = np.empty(len(ordered), bool)
    keep[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=keep[1:])
    return ordered[keep]
