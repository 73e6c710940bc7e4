"""Memory of the host straight from the system, which has it back as soon as nobody uses it.

malloc takes large blocks from its heap once it has seen some come and go, and keeps them.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
import threading

import numpy as np

__all__ = ["Region", "map_bytes", "populate_in_background"]

_HUGE = 1 << 22
"""From this size on, memory is asked for in large pages, as NumPy does for its own."""

_ROOM = 1 << 30
"""Addresses that a Region has at least: with that few programs ever outgrow one."""

_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
"""MAP_NORESERVE, which Python does not name before 3.13: the system need not promise that there
will be memory for all of it."""


_POPULATE_WRITE = 23
"""MADV_POPULATE_WRITE (Linux 5.14), which Python does not name."""

_PIECE = 1 << 22
"""Populated at a time: meanwhile nobody else can map memory."""


def _mapped(num_bytes: int, extra_flags: int = 0) -> mmap.mmap:
    """MemoryError if the system has not so much."""
    try:
        if hasattr(mmap, "MAP_PRIVATE"):
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | extra_flags
            return mmap.mmap(-1, num_bytes, flags)
        return mmap.mmap(-1, num_bytes)
    except (OSError, OverflowError):
        raise MemoryError(f"({num_bytes} bytes)") from None


def _ask_for_large_pages(memory: mmap.mmap, num_bytes: int) -> None:
    if num_bytes >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE, 0, num_bytes)


def map_bytes(num_bytes: int) -> np.ndarray:
    """New bytes, at a multiple of the page size."""
    memory = _mapped(num_bytes)
    _ask_for_large_pages(memory, num_bytes)
    return np.frombuffer(memory, np.uint8)


def populate_in_background(memory: np.ndarray) -> None:
    """Have the system find memory for new bytes on a thread of its own, from the first on.

    Else whoever writes to them first waits for it: 180 ms of the main thread for the 136 MB of a
    minibatch of benchmarks/' tdnnf, where a virtual machine had to be given the memory; where the
    system had it at hand, no difference could be measured.
    """
    if memory.size >= _HUGE and sys.platform == "linux":
        with contextlib.suppress(RuntimeError):  # with a limit on threads, or on their stacks
            threading.Thread(target=_populate, args=(memory,), daemon=True).start()


def _populate(memory: np.ndarray) -> None:
    """As far as the system can; nobody depends on it."""
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    begin = -(-memory.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (memory.ctypes.data + memory.size) // mmap.PAGESIZE * mmap.PAGESIZE
    for first in range(begin, end, _PIECE):
        if advise(first, min(_PIECE, end - first), _POPULATE_WRITE) != 0:
            break


class Region:
    """Bytes that can become more where they are: addresses are kept for them, which cost nothing.

    So what was made of the first bytes stays valid when somebody comes to need more, and nothing
    has to be held twice meanwhile.
    """

    def __init__(self, num_bytes: int) -> None:
        """Room for many times `num_bytes` if the system lets one have it, else for these.

        MemoryError if it does not even let one have these.
        """
        try:
            self._memory = _mapped(max(_ROOM, 4 * num_bytes), _NO_RESERVE)
        except MemoryError:  # with a limit on addresses
            self._memory = _mapped(max(1, num_bytes))
        self._bytes = np.frombuffer(self._memory, np.uint8)
        self._used = 0

    @property
    def room(self) -> int:
        """Bytes that there are addresses for."""
        return len(self._bytes)

    def first(self, num_bytes: int) -> np.ndarray:
        """The first bytes, as many as there is room for."""
        if num_bytes > self._used:
            self._used = num_bytes
            _ask_for_large_pages(self._memory, num_bytes)
        return self._bytes[:num_bytes]
