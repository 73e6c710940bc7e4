"""Places in one arena for blocks of memory whose lives are known."""

from __future__ import annotations

import bisect
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

ALIGNMENT = 64
"""Bytes: a cache line, and what vector loads want."""

Ints = NDArray[np.int64]
_MOST_RANKED = 3000  # an order of as many blocks takes .2 s


def rounded_up(num_bytes: int, alignment: int = ALIGNMENT) -> int:
    """The least multiple of `alignment` that is at least `num_bytes`."""
    return -(-num_bytes // alignment) * alignment


def assign_offsets(sizes: ArrayLike, first: ArrayLike, last: ArrayLike) -> tuple[list[int], int]:
    """(offsets in bytes, total size) of blocks; blocks that live at the same time do not overlap.

    Block i has sizes[i] bytes and lives from first[i] through last[i]. The smallest of several
    placements is taken, or the first one that needs no more bytes than live at one time.
    """
    size = np.asarray(sizes, np.int64)
    size = (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    begin, end = np.asarray(first, np.int64), np.asarray(last, np.int64)
    bound = live_bytes(size, begin, end)
    best, best_total = np.zeros(len(size), np.int64), -1
    for offsets in _placements(size, begin, end):
        total = int((offsets + size).max(initial=0))
        if best_total < 0 or total < best_total:
            best, best_total = offsets, total
        if best_total == bound:
            break
    return best.tolist(), best_total


def _placements(size: Ints, begin: Ints, end: Ints) -> Iterator[Ints]:
    """Yield offsets of blocks, each of which goes into the tightest gap when its turn comes.

    The turns: longest-lived first, largest first (Pisarchyk & Lee 2020, "Efficient Memory
    Management for Deep Neural Net Inference"), and the order of time, forwards and backwards. The
    time of the first two grows quadratically; they are left out for many blocks.
    """
    if len(size) <= _MOST_RANKED:
        for order in (np.lexsort((-size, begin - end)), np.argsort(-size, kind="stable")):
            yield _place(order.tolist(), size, begin, end)
    yield _sweep(size, begin, end)
    yield _sweep(size, -end, -begin)


def _sweep(size: Ints, begin: Ints, end: Ints) -> Ints:
    """Byte offsets of blocks placed in order of `begin` (a time), each in the smallest free gap."""
    sizes, offsets, top = size.tolist(), [0] * len(size), 0  # all bytes from `top` on are free
    gaps: list[tuple[int, int]] = []  # (size, first byte) of the gaps below, sorted
    other_end: dict[int, int] = {}  # first byte of a gap -> byte after the last, and back

    def remove_gap(edge: int) -> int:
        """Remove the gap that begins or ends at the byte `edge`; returns its other edge."""
        other = other_end.pop(edge)
        del gaps[bisect.bisect_left(gaps, (abs(edge - other), min(edge, other)))], other_end[other]
        return other

    # A block begins at an even time and ends at an odd one; larger blocks begin first.
    used = np.flatnonzero(size)
    times = np.concatenate([2 * begin[used], 2 * end[used] + 1])
    for event in np.lexsort((np.concatenate([-size[used], size[used]]), times)).tolist():
        i = int(used[event % len(used)])
        if event < len(used):
            at = bisect.bisect_left(gaps, (sizes[i], 0))
            start, stop = top, top + sizes[i]
            if at < len(gaps):
                start = gaps[at][1]
                stop = remove_gap(start)
            offsets[i], top = start, max(top, stop)
            start += sizes[i]
        else:
            start, stop = offsets[i], offsets[i] + sizes[i]
            if start in other_end:
                start = remove_gap(start)
            if stop in other_end:
                stop = remove_gap(stop)
            if stop == top:
                top = stop = start
        if start < stop:
            bisect.insort(gaps, (stop - start, start))
            other_end[start], other_end[stop] = stop, start
    return np.array(offsets, np.int64)


def _place(order: list[int], size: Ints, begin: Ints, end: Ints) -> Ints:
    offsets = np.zeros(len(size), np.int64)
    # first byte, byte after the last, begin and end of the blocks placed, by first byte
    placed = np.empty((4, len(order)), np.int64)
    for count, i in enumerate(order):
        done = placed[:, :count]
        meets = done[:2, (done[2] <= end[i]) & (done[3] >= begin[i])]
        offset = offsets[i] = _best_gap(meets[0], meets[1], int(size[i]))
        at = int(done[0].searchsorted(offset))
        placed[:, at + 1 : count + 1] = placed[:, at:count]
        placed[:, at] = offset, offset + size[i], begin[i], end[i]
    return offsets


_NO_GAP = np.iinfo(np.int64).max


def _best_gap(begins: Ints, ends: Ints, size: int) -> int:
    """The start of the smallest gap of at least `size` bytes between ranges.

    Ranges are begins[i] to ends[i], sorted by begin. Without such a gap, the end of all ranges.
    """
    if not len(begins):
        return 0
    reached = np.maximum.accumulate(ends)
    gap = begins.copy()
    gap[1:] -= reached[:-1]
    gap[gap < size] = _NO_GAP
    best = int(gap.argmin())
    if gap[best] == _NO_GAP:
        return int(reached[-1])
    return int(reached[best - 1]) if best else 0


def live_bytes(size: Ints, begin: Ints, end: Ints) -> int:
    """The most bytes alive at once; block i, of size[i], lives from begin[i] through end[i]."""
    if not len(size):
        return 0
    change = np.zeros(int(end.max()) + 2, np.int64)
    np.add.at(change, begin, size)
    np.add.at(change, end + 1, -size)
    return int(np.cumsum(change).max())


def capacity(count: int) -> int:
    """The least size of the series 16, 24, 32, 48, 64, ... for at least `count` elements."""
    power = 1 << max(4, (count - 1).bit_length())
    return power * 3 // 4 if count <= power * 3 // 4 else power
