"""Launches as values: a kernel with its arguments, grid, and the memory that it reads and writes.

Operators are bound to launches. A launch that is called goes to the device. Within `launches_of` it
is added to a list instead, which is rewritten before a graph is captured (fused_levels.py).
"""

from __future__ import annotations

import copy
import math
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.addresses import address, span
from nnet3tools.tensor.cuda.device import Array, Dim, Kernel, get_device
from nnet3tools.tensor.operands import is_array

Step = Callable[[], Any]
"""Bound work, for example a Launch."""


class _ThreadState(threading.local):
    collected: list[Launch | LibraryCall] | None = None
    """Receives this thread's launches, if they are collected instead of done."""
    flag: Array = None
    """If not None, a graph with launches that are collected now does them if this flag is not 0."""


state = _ThreadState()


class Launch:
    """A kernel with its grid and arguments; calling it launches the kernel."""

    __slots__ = (
        "args", "block", "flag", "grid", "kernel", "loops", "name", "points", "reads", "size",
        "source", "space", "writes",
    )  # fmt: skip

    def __init__(
        self, kernel: Kernel, source: str, name: str, grid: Dim, block: Dim, args: Sequence[Any],
        reads: Sequence[Array], writes: Sequence[Array], *, size: int = 1 << 62,
        loops: bool = False, space: Hashable = None, points: Sequence[Array] = (),
    ) -> None:  # fmt: skip
        self.kernel, self.source, self.name = kernel, source, name
        self.grid, self.block, self.args = grid, block, tuple(args)
        self.reads, self.writes = tuple(reads), tuple(writes)
        """Arrays that the kernel reads, and that it changes; kept alive for their addresses."""
        self.size = size
        """The number of points that threads work on."""
        self.loops = loops
        """Whether a grid of any size does the same work."""
        self.space = space
        """In launches of equal spaces (not None) the same thread works on the same point."""
        self.points = tuple(points)
        """The arrays of which each thread reads and writes its own points only."""
        self.flag: Array = None
        """A float64 on the device; if it is 0, the launch is left out. Only in fused levels."""

    def __call__(self) -> None:
        if state.collected is None:
            self.kernel(self.grid, self.block, self.args)
        elif state.flag is None:
            state.collected.append(self)
        else:
            flagged = copy.copy(self)
            flagged.flag, flagged.reads = state.flag, (*self.reads, state.flag)
            state.collected.append(flagged)

    @property
    def num_bytes(self) -> int:
        """Bytes of the arrays that the launch reads or writes."""
        return sum(a.nbytes for a in {id(a): a for a in (*self.reads, *self.writes)}.values())

    def __repr__(self) -> str:
        return f"{self.name} {self.grid} {self.block}"


class LibraryCall:
    """A call of a library, such as a matrix product, in a sequence of kernel launches."""

    __slots__ = ("name", "reads", "run", "writes")

    def __init__(
        self, name: str, run: Callable[[], Any], reads: Sequence[Array], writes: Sequence[Array]
    ) -> None:
        self.name, self.run, self.reads, self.writes = name, run, tuple(reads), tuple(writes)

    def __call__(self) -> None:
        if state.collected is None:
            self.run()
        elif state.flag is not None:
            raise ProgramError(f"{self.name} cannot be optional work of a graph")
        else:
            state.collected.append(self)

    def __repr__(self) -> str:
        return self.name


def only_if(flag: Array, is_set: bool, work: Callable[[], Any]) -> Any:
    """Call `work` if `is_set`, and return its result.

    While launches are collected for a graph, always call it: each replay then looks at `flag`
    (a float64 in device memory), and leaves out the launches of `work` if it is 0.
    """
    if state.collected is None:
        return work() if is_set else None
    before, state.flag = state.flag, flag
    try:
        return work()
    finally:
        state.flag = before


def launches_of(work: Callable[[], Any]) -> list[Launch | LibraryCall]:
    """The launches and library calls that `work()` makes, in order; none reaches the device."""
    before, state.collected = state.collected, []
    try:
        work()
        return state.collected
    finally:
        state.collected = before


def dependencies(nodes: Sequence[Launch | LibraryCall]) -> list[set[int]]:
    """For each node, the earlier nodes with which it shares memory that one of them writes."""
    owners, arrays, writes = list[int](), list[Array](), list[bool]()
    for i, node in enumerate(nodes):
        written = {id(a) for a in node.writes}
        for a in {id(a): a for a in (*node.reads, *node.writes)}.values():
            owners.append(i)
            arrays.append(a)
            writes.append(id(a) in written)
    owner, write = np.array(owners), np.array(writes, bool)
    low, high, pitch, width = np.array([span(a) for a in arrays], np.int64).reshape(-1, 4).T
    found: list[set[int]] = [set() for _ in nodes]
    for k in range(len(owners)):
        begin = int(np.searchsorted(owner, owner[k]))
        meets = (low[:begin] < high[k]) & (low[k] < high[:begin])
        if not write[k]:
            meets &= write[:begin]
        (others,) = np.nonzero(meets)
        if pitch[k] and others.size:
            gap = (low[others] - low[k]) % pitch[k]
            apart = (pitch[others] == pitch[k]) & (gap >= width[k])
            others = others[~(apart & (gap + width[others] <= pitch[k]))]
        found[owner[k]].update(owner[others].tolist())
    return found


_TICKETS = 1 << 14
"""Zeros that are uploaded in one array."""


class _Tickets:
    """A store of zero counters on a device; kernels leave zeros behind, so they are used again."""

    def __init__(self) -> None:
        self._free: dict[int, list[Array]] = {}
        self._new: Array = None

    def take(self, count: int) -> Array:
        free = self._free.setdefault(count, [])
        if not free:
            if self._new is None or len(self._new) < count:
                self._new = get_device().upload(np.zeros(max(_TICKETS, count), np.uint32))
            free.append(self._new[:count])
            self._new = self._new[count:]
        base = free.pop()
        taken = base[:]
        weakref.finalize(taken, free.append, base)
        return taken


_tickets: weakref.WeakKeyDictionary[Any, _Tickets] = weakref.WeakKeyDictionary()


def zero_tickets(count: int) -> Array:
    """`count` zeros (uint32) on the device: counters by which kernels find a group's last block.

    Kernels leave zeros behind (nn_is_last in prelude.cuh), so that the next kernel finds zeros.
    """
    return _tickets.setdefault(get_device(), _Tickets()).take(count)


def arguments(values: Sequence[Any]) -> list[Any]:
    """Values as kernel arguments: addresses of arrays, int64 for integers, float64 for floats."""
    return [
        np.uint64(address(v)) if is_array(v)
        else np.float64(v) if isinstance(v, (float, np.floating))
        else np.int64(v)
        for v in values
    ]  # fmt: skip


# -- grids and blocks

THREADS = 256
_BLOCKS_A_PROCESSOR = 16
"""The most blocks that a grid has for each multiprocessor; threads loop over further work."""


def grid_for(items: int, rows: int, processors: int) -> tuple[Dim, Dim]:
    """(grid, block) of a kernel that loops over `items` along x and `rows` along y."""
    width = min(THREADS, max(32, 1 << (max(items, 1) - 1).bit_length()))
    height = min(THREADS // width, max(rows, 1))
    blocks_x = max(1, math.ceil(items / width))
    most = processors * _BLOCKS_A_PROCESSOR
    blocks_x = min(blocks_x, max(1, most))
    blocks_y = min(max(1, math.ceil(rows / height)), max(1, most // blocks_x), 65535)
    return (blocks_x, blocks_y, 1), (width, height, 1)


def block_of(length: int, most_threads: int = THREADS) -> int:
    """The threads of a block that works on `length` elements: a power of two, at least a warp."""
    return min(most_threads, max(32, 1 << (max(length, 1) - 1).bit_length()))


COLUMNS, LANES = 32, 8
"""Columns and rows of the threads of a block that sums columns."""
_FEWEST_BLOCKS, _MOST_BLOCKS, _SLICES = 2, 8, 32
"""Blocks of a sum of columns for each processor; more than the fewest up to so many slices."""


def slices_of(rows: int, columns: int, processors: int) -> tuple[int, int]:
    """(slices of rows, tiles of 32 columns) that a kernel divides a matrix into to sum its columns.

    There are enough blocks to keep the device busy, and at least 8 rows to a block. A tile's
    last block adds up the slices: with four times as many slices this took most of 66 us on an
    H100, for the sums of 960 x 256 LSTM cells.
    """
    tiles = max(1, -(-columns // COLUMNS))
    few, many = (-(-blocks * processors // tiles) for blocks in (_FEWEST_BLOCKS, _MOST_BLOCKS))
    wanted = max(few, min(many, _SLICES))
    return max(1, min(wanted, -(-rows // LANES))), tiles
