"""Scratch memory of recordings, at addresses that stay."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools.tensor.arrays import aligned_bytes, empty, forget_scratch
from nnet3tools.tensor.offsets import rounded_up

__all__ = ["Workspace"]

_PAGE = 4096


class Workspace:
    """Scratch memory of recordings: a stack, which recordings that never run at once may share.

    Each place in it keeps its address, so that bound calls may refer to it.
    """

    def __init__(self, like: Any = None) -> None:
        self._like, self._memory, self._used = like, None, 0

    def reserve(self, num_bytes: int) -> None:
        """Have so much from here on; older recordings keep the memory that they use."""
        if self._used == 0 and (self._memory is None or self._memory.size < num_bytes):
            forget_scratch()
            self._memory = aligned_bytes(num_bytes, _PAGE, self._like)

    def take(self, num_bytes: int) -> Any:
        """The next bytes of the stack; new memory where it ends."""
        first = self._used
        self._used += rounded_up(num_bytes)
        if self._memory is None or self._used > self._memory.size:
            return empty(num_bytes, self._like, np.uint8)
        return self._memory[first : first + num_bytes]

    def give_back(self, buffer: Any) -> None:
        """The latest bytes taken may be used again."""
        self._used -= rounded_up(buffer.size)
