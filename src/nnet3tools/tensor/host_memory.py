"""Host memory mapped from the operating system, to which it returns when its last array is freed.

malloc keeps large freed blocks in its heap once a program has allocated and freed a few.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
import threading
from bisect import bisect_left

import numpy as np

_HUGE = 1 << 22
"""Blocks of at least so many bytes are asked for in large pages, as in NumPy."""

_ROOM = 1 << 30
"""The least number of bytes for which a Region reserves addresses; few programs need more."""

_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
"""MAP_NORESERVE, which Python names from 3.13 on: addresses without a promise of memory."""


_POPULATE_WRITE = 23
"""MADV_POPULATE_WRITE (Linux 5.14), which Python does not name."""

_POPULATED_AT_ONCE = 1 << 22
"""Bytes for each call of madvise, during which other threads cannot map memory."""


def _mapped(num_bytes: int, extra_flags: int = 0) -> mmap.mmap:
    """New memory from the system (mmap); MemoryError if the system does not have so much."""
    try:
        return mmap.mmap(-1, num_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | extra_flags)
    except (OSError, OverflowError):
        raise MemoryError(f"({num_bytes} bytes)") from None


def _ask_for_large_pages(memory: mmap.mmap, num_bytes: int) -> None:
    if num_bytes >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE, 0, num_bytes)


def map_bytes(num_bytes: int) -> np.ndarray:
    """An array of new zero bytes, aligned to a page."""
    memory = _mapped(num_bytes)
    _ask_for_large_pages(memory, num_bytes)
    return np.frombuffer(memory, np.uint8)


def populate_in_background(memory: np.ndarray) -> None:
    """Let a thread make the system allocate the memory of new bytes, from first to last.

    Otherwise the first write to each page waits for the system. On a virtual machine whose host had
    to free memory, this took 180 ms for the 136 MB of a minibatch of benchmarks/' tdnnf, else 0 ms.
    """
    if memory.size >= _HUGE and sys.platform == "linux":
        with contextlib.suppress(RuntimeError):  # with a limit on threads, or on their stacks
            threading.Thread(target=_populate, args=(memory,), daemon=True).start()


def _populate(memory: np.ndarray) -> None:
    """Make the system allocate mapped bytes now, as far as it can; failure has no consequence."""
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    begin = -(-memory.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (memory.ctypes.data + memory.size) // mmap.PAGESIZE * mmap.PAGESIZE
    for first in range(begin, end, _POPULATED_AT_ONCE):
        if advise(first, min(_POPULATED_AT_ONCE, end - first), _POPULATE_WRITE) != 0:
            break


class Region:
    """Host memory that can grow in place, because addresses for more bytes are reserved.

    Reserving addresses takes no memory. Arrays over the first bytes stay valid; nothing is copied.
    """

    def __init__(self, num_bytes: int) -> None:
        """Reserve addresses for 4 * `num_bytes` or, if refused, `num_bytes`; else MemoryError."""
        try:
            self._memory = _mapped(max(_ROOM, 4 * num_bytes), _NO_RESERVE)
        except MemoryError:  # with a limit on addresses
            self._memory = _mapped(max(1, num_bytes))
        self._bytes = np.frombuffer(self._memory, np.uint8)
        self._used = 0

    @property
    def room(self) -> int:
        """Number of bytes for which addresses are reserved."""
        return len(self._bytes)

    def first(self, num_bytes: int) -> np.ndarray:
        """A view of the first `num_bytes` bytes, at most `room`."""
        if num_bytes > self._used:
            self._used = num_bytes
            _ask_for_large_pages(self._memory, num_bytes)
        return self._bytes[:num_bytes]


_SMALL = 1 << 16
"""Buffers of at most so many bytes have a power of two as their size, and do not grow."""


class HostPool:
    """Buffers of host memory that are free to be used again; they grow to the sizes asked for.

    Size classes would keep a buffer for each size that was ever asked for, and in the training of a
    small network half of all memory would be such buffers.
    """

    def __init__(self) -> None:
        self._small: dict[int, list[np.ndarray]] = {}
        self._sizes: list[int] = []
        self._large: list[np.ndarray] = []
        """In the order of `_sizes`, smallest first."""
        self._lock = threading.Lock()

    def take(self, num_bytes: int) -> np.ndarray:
        """A free buffer of >= `num_bytes`, else a new one, in place of the largest free one."""
        if num_bytes <= _SMALL:
            size = 1 << max(10, (max(num_bytes, 1) - 1).bit_length())
            buffers = self._small.get(size)
            return buffers.pop() if buffers else np.empty(size, np.uint8)
        with self._lock:
            found = bisect_left(self._sizes, num_bytes)
            if found < len(self._sizes):
                del self._sizes[found]
                return self._large.pop(found)
            if self._sizes:
                self._sizes.pop()
                self._large.pop()
        return map_bytes(num_bytes)

    def give_back(self, buffer: np.ndarray) -> None:
        """Return a buffer from `take` to the pool."""
        size = buffer.size
        if size <= _SMALL:
            self._small.setdefault(size, []).append(buffer)
            return
        with self._lock:
            at = bisect_left(self._sizes, size)
            self._sizes.insert(at, size)
            self._large.insert(at, buffer)

    def forget(self) -> None:
        """Release the memory of all buffers that are free."""
        with self._lock:
            self._small.clear()
            self._sizes.clear()
            self._large.clear()

    @property
    def num_bytes(self) -> int:
        """Number of bytes in buffers that are free."""
        return sum(self._sizes) + sum(size * len(b) for size, b in self._small.items())
