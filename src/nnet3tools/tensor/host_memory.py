"""Memory of the host straight from the system, which has it back as soon as nobody uses it.

malloc takes large blocks from its heap once it has seen some come and go, and keeps them.
"""

from __future__ import annotations

import mmap
import sys

import numpy as np

__all__ = ["Region", "map_bytes"]

_HUGE = 1 << 22
"""From this size on, memory is asked for in large pages, as NumPy does for its own."""

_ROOM = 1 << 30
"""Addresses that a Region has at least: with that few programs ever outgrow one."""

_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
"""MAP_NORESERVE, which Python does not name before 3.13: the system need not promise that there
will be memory for all of it."""


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
