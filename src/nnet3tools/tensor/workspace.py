"""Memory that programs and their recordings share. Addresses in it stay valid while it grows."""

from __future__ import annotations

from mmap import mmap
from typing import Any

import numpy as np

from nnet3tools.tensor.arrays import aligned_bytes, empty, poison
from nnet3tools.tensor.host_memory import ask_for_large_pages, reserve
from nnet3tools.tensor.kernel_policy import KernelPolicy
from nnet3tools.tensor.offsets import rounded_up
from nnet3tools.tensor.registry import on_host

_PAGE = 4096
_AMPLE = 1 << 28
"""Bytes of scratch memory that are enough for almost all programs."""


class GrowingBytes:
    """Memory of a device that can grow; `moves` counts how often its address has changed.

    On the host it grows in place as far as addresses are reserved, so that views stay valid.
    Beyond that, and on a GPU, growing allocates new bytes; old views keep the old bytes.
    """

    def __init__(self, like: Any = None) -> None:
        self._on_host, self._like = on_host(like), like
        self._bytes = self._room = empty(0, like, np.uint8)
        self._map: mmap | None = None
        """The host memory that `_room` is an array of."""
        self.moves = 0

    @property
    def size(self) -> int:
        """The largest number of bytes that `first` has been asked for."""
        return int(self._bytes.size)

    def can_hold(self, num_bytes: int) -> bool:
        """Whether `first(num_bytes)` can do without allocating new memory."""
        return num_bytes <= int(self._room.size)

    def first(self, num_bytes: int) -> Any:
        """The first `num_bytes` bytes, allocated if necessary; earlier views stay valid."""
        if num_bytes > self.size:
            self._grow(num_bytes)
        return self._bytes[:num_bytes]

    def _grow(self, num_bytes: int) -> None:
        before = self.size
        if not self.can_hold(num_bytes):
            if self._on_host:
                self._map = reserve(num_bytes)
                self._room = np.frombuffer(self._map, np.uint8)
            else:
                self._room = aligned_bytes(num_bytes, _PAGE, self._like)
            before = 0
            self.moves += 1
        if self._map is not None:
            ask_for_large_pages(self._map, num_bytes)
        self._bytes = self._room[:num_bytes]
        poison(self._bytes[before:])


class Workspace:
    """Scratch memory as a stack, for operator calls that are recorded, and on a CPU for others.

    Addresses stay valid, so that bound calls may refer to them. `policy` decides how programs that
    share this memory run their steps: by Python code or a replay, by NumPy or compiled kernels.
    """

    def __init__(self, like: Any = None) -> None:
        self._like, self._memory, self._used = like, GrowingBytes(like), 0
        self.policy = KernelPolicy()
        if on_host(like):
            self._memory.first(1)  # reserves the addresses

    @property
    def grows_in_place(self) -> bool:
        """Whether the stack grows at one address, so that recording needs no earlier `reserve`."""
        return self._memory.can_hold(_AMPLE)

    def another(self) -> Workspace:
        """A new, empty Workspace on the same device, for work that runs concurrently."""
        return Workspace(self._like)

    def reserve(self, num_bytes: int) -> None:
        """Make the stack, if empty, at least `num_bytes` large; recordings keep the old memory."""
        if self._used == 0 and self._memory.size < num_bytes:
            self._memory.first(num_bytes)

    def take(self, num_bytes: int) -> Any:
        """The next `num_bytes` bytes (uint8) of the stack; if it cannot grow, of new memory."""
        first = self._used
        self._used += rounded_up(num_bytes)
        if not self._memory.can_hold(self._used):
            return empty(num_bytes, self._like, np.uint8)
        return self._memory.first(self._used)[first : first + num_bytes]

    def give_back(self, buffer: Any) -> None:
        """Return the bytes of the latest `take` to the stack."""
        self._used -= rounded_up(buffer.size)
