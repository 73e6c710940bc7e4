"""Memory of the modelled GPU: pages that nobody may touch around each block, pools that recycle.

A block of a pool goes back to it when the array that held it is gone, whatever graphs still
refer to it, and the next array of the same stream gets it; a pool that cannot grow gives its free
blocks back, and their addresses are no memory any more (CuPy's memory.pyx).
"""

from __future__ import annotations

import bisect
import ctypes
import gc
import mmap
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from support.model_streams import Machine

_PAGE = mmap.PAGESIZE
OUT_OF_MEMORY = 2
_ALIGNMENT = 16
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class CUDARuntimeError(RuntimeError):
    """As cupy.cuda.runtime's."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class CUDADriverError(CUDARuntimeError):
    """As cupy.cuda.driver's."""


class OutOfMemoryError(MemoryError):
    """As cupy.cuda.memory's."""


_blocks: list[tuple[int, int]] = []
"""(begin, end) of all devices' blocks, in order."""


class DeviceMemory:
    """What cudaMalloc gives and cudaFree takes."""

    def __init__(self, total: int) -> None:
        self.total, self.used = total, 0
        self._maps: dict[int, mmap.mmap] = {}
        self._sizes: dict[int, int] = {}

    def malloc(self, size: int) -> int:
        """The address of so many bytes, whole pages, between two that are no memory."""
        if self.used + size > self.total:
            raise CUDARuntimeError(OUT_OF_MEMORY, "cudaErrorMemoryAllocation: out of memory")
        pages = mmap.mmap(-1, size + 2 * _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        at = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + _PAGE
        _protect(at - _PAGE, _PAGE)
        _protect(at + size, _PAGE)
        self.used += size
        self._maps[at], self._sizes[at] = pages, size
        bisect.insort(_blocks, (at, at + size))
        return at

    def free(self, at: int) -> None:
        """Make it pages that nobody may touch; their addresses do not come back."""
        size = self._sizes.pop(at)
        self._maps[at].madvise(mmap.MADV_DONTNEED)
        _blocks.remove((at, at + size))
        self.used -= size
        _protect(at, size)

    def unguard(self) -> None:
        """Let all be touched from here on: memos of operators outlive a test's device.

        The kernel allows 65,530 ranges of pages; neighbours that are alike count as one.
        """
        for at, pages in self._maps.items():
            _protect(at - _PAGE, len(pages), mmap.PROT_READ | mmap.PROT_WRITE)

    def __del__(self) -> None:
        for at, size in self._sizes.items():
            _blocks.remove((at, at + size))


def _protect(at: int, size: int, to: int = 0) -> None:
    assert _libc.mprotect(at, size, to) == 0


def is_memory(first: int, end: int) -> bool:
    """Whether these bytes lie in one block."""
    i = bisect.bisect_right(_blocks, (first, 1 << 62)) - 1
    return i >= 0 and end <= _blocks[i][1]


class MemoryPointer:
    """An array's memory, given back to its pool when nobody holds it any more."""

    def __init__(self, address: int, num_bytes: int, pool: Pool, key: tuple[Any, int], block: int):
        self.ptr, self._pool, self._key, self._block = address, pool, key, block
        self.__array_interface__ = {
            "data": (address, False), "shape": (num_bytes,), "typestr": "|u1", "version": 3,
        }  # fmt: skip

    def __del__(self) -> None:
        self._pool.give_back(self._key, self._block)


class Pool:
    """CuPy's MemoryPool: free blocks by stream and size."""

    def __init__(self, machine: Machine | None = None) -> None:
        from support.model_streams import get_machine

        self._machine = machine or get_machine()
        self._free: dict[tuple[Any, int], list[int]] = {}
        self.reused = 0
        self._limit = self._total = 0

    def malloc(self, num_bytes: int) -> MemoryPointer:
        """Memory for the current stream; its last byte is just before a page that is none."""
        size = max(1, -(-num_bytes // _PAGE)) * _PAGE
        key = self._machine.current_stream().ptr, size
        blocks = self._free.get(key)
        if blocks:
            block = blocks.pop()
            self.reused += 1
        else:
            block = self._grow(size)
        at = block + size - -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
        return MemoryPointer(at, num_bytes, self, key, block)

    def _grow(self, size: int) -> int:
        for tidy_up in (self.free_all_blocks, self._collect, None):
            try:
                if self._limit and self._total + size > self._limit:
                    raise CUDARuntimeError(OUT_OF_MEMORY, "over the pool's limit")
                block = self._machine.memory.malloc(size)
                self._total += size
                return block
            except CUDARuntimeError:
                if tidy_up is not None:
                    tidy_up()
        raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes")

    def _collect(self) -> None:
        gc.collect()
        self.free_all_blocks()

    def give_back(self, key: tuple[Any, int], block: int) -> None:
        """Let the next array of this stream and size have a block."""
        self._free.setdefault(key, []).append(block)

    def free_bytes(self) -> int:
        """Bytes that the pool keeps unused."""
        return sum(size * len(blocks) for (_, size), blocks in self._free.items())

    def total_bytes(self) -> int:
        """Bytes that the pool has, used or not."""
        return self._total

    def used_bytes(self) -> int:
        """Bytes that arrays hold."""
        return self._total - self.free_bytes()

    def get_limit(self) -> int:
        """Bytes that the pool may have; 0: any number."""
        return self._limit

    def set_limit(self, size: int) -> None:
        """Set that."""
        self._limit = size

    def free_all_blocks(self, stream: Any = None) -> None:
        """Give unused blocks back to the device, which waits for all its work."""
        if not any(self._free.values()):
            return
        self._machine.flush()
        for (_, size), blocks in self._free.items():
            while blocks:
                self._machine.memory.free(blocks.pop())
                self._total -= size


def as_array(pointer: MemoryPointer, num_bytes: int) -> np.ndarray:
    """Bytes of it that keep it alive."""
    return np.asarray(pointer)[:num_bytes]
