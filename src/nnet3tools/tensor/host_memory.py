"""Host memory mapped from the operating system: a block that can grow at one address."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
import threading

import numpy as np

_HUGE = 1 << 22
"""Blocks of at least so many bytes are asked for in large pages, as in NumPy."""

_ROOM = 1 << 30
"""The least number of bytes for which addresses are reserved; few programs need more."""

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


def ask_for_large_pages(memory: mmap.mmap, num_bytes: int) -> None:
    """Ask the system for large pages for the first `num_bytes` bytes, if they are many."""
    if num_bytes >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE, 0, num_bytes)


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


def reserve(num_bytes: int) -> mmap.mmap:
    """New host memory: addresses for 4 * `num_bytes` bytes or, if refused, `num_bytes`.

    MemoryError if both are refused. Addresses take no memory before they are written to, so arrays
    over the first bytes can be followed by larger ones over the same bytes.
    """
    try:
        return _mapped(max(_ROOM, 4 * num_bytes), _NO_RESERVE)
    except MemoryError:  # with a limit on addresses
        return _mapped(max(1, num_bytes))
