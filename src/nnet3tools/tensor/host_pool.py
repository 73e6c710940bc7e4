"""Scratch memory of the host: as many buffers as are ever in use at once, grown to what they hold.

Size classes would keep a buffer for every size that was ever asked for: with them, half of a small
network's training was scratch memory that waited for a layer of the right size.
"""

from __future__ import annotations

import threading
from bisect import bisect_left

import numpy as np

from nnet3tools.tensor.host_memory import map_bytes

__all__ = ["HostPool"]

_SMALL = 1 << 16
"""Up to this many bytes, sizes are powers of two and buffers stay as they are."""


class HostPool:
    """Buffers that are not in use."""

    def __init__(self) -> None:
        self._small: dict[int, list[np.ndarray]] = {}
        self._sizes: list[int] = []
        self._large: list[np.ndarray] = []
        """By size, smallest first."""
        self._lock = threading.Lock()

    def take(self, num_bytes: int) -> np.ndarray:
        """A buffer of at least this size in bytes.

        Where the largest one is too small, it is given up for one that is not.
        """
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
        """Take back what `take` gave."""
        size = buffer.size
        if size <= _SMALL:
            self._small.setdefault(size, []).append(buffer)
            return
        with self._lock:
            at = bisect_left(self._sizes, size)
            self._sizes.insert(at, size)
            self._large.insert(at, buffer)

    def forget(self) -> None:
        """Give up the buffers that are not in use."""
        with self._lock:
            self._small.clear()
            self._sizes.clear()
            self._large.clear()

    @property
    def num_bytes(self) -> int:
        """Bytes in buffers that are not in use."""
        return sum(self._sizes) + sum(size * len(b) for size, b in self._small.items())
