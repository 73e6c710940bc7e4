"""HostPool: free scratch buffers of the host, which grow to the sizes that are asked for.

Size classes would keep a buffer for each size that was ever asked for, and in the training of a
small network half of all memory would be such buffers.
"""

from __future__ import annotations

import threading
from bisect import bisect_left

import numpy as np

from nnet3tools.tensor.host_memory import map_bytes

_SMALL = 1 << 16
"""Buffers of at most so many bytes have a power of two as their size, and do not grow."""


class HostPool:
    """Buffers of host memory that are free to be used again."""

    def __init__(self) -> None:
        self._small: dict[int, list[np.ndarray]] = {}
        self._sizes: list[int] = []
        self._large: list[np.ndarray] = []
        """In the order of `_sizes`, smallest first."""
        self._lock = threading.Lock()

    def take(self, num_bytes: int) -> np.ndarray:
        """A free buffer of at least `num_bytes` bytes, or a new one that replaces the largest."""
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
