"""The interface between this backend and CUDA.

A Device compiles kernel sources, launches kernels, multiplies matrices and moves bytes. cuda.py has
the real one. Tests use others, which record launches or run kernels on the host.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Array = Any
Dim = tuple[int, int, int]
Gemm = Callable[[], None]
"""A matrix product bound to operands: row-major C = alpha op(A) op(B) + beta C."""
Kernel = Callable[[Dim, Dim, Sequence[Any]], None]
"""Called with grid, block and arguments: NumPy scalars, pointers as uint64."""


class Event(Protocol):
    """A point in a stream, which is reached when all earlier work of the stream is done."""

    def synchronize(self) -> None:
        """Wait on the host until the event is reached. Any thread may call this."""


class Device(Protocol):
    """A machine that runs kernels.

    All work goes to the main stream, in order, except copies from pinned memory, which go to a
    second stream. `num_processors` are its multiprocessors; a block may have
    `most_shared_bytes` of shared memory.
    """

    num_processors: int

    most_shared_bytes: int

    def kernel(self, source: str, name: str, shared_bytes: int = 0) -> Kernel:
        """The kernel `name` of a CUDA C++ source, which is compiled once and cached on disk.

        Each block gets `shared_bytes` of shared memory in addition to what the source declares.
        """

    def load(self, sources: Sequence[tuple[str, str]]) -> None:
        """Compile and load kernels (source, name) concurrently, before `kernel` asks for them."""

    def gemm(
        self, dtype: np.dtype, rows: int, cols: int, inner: int, batch: int,
        a: int, lda: int, trans_a: bool, stride_a: int,
        b: int, ldb: int, trans_b: bool, stride_b: int,
        c: int, ldc: int, stride_c: int, alpha: Any, beta: float,
    ) -> Gemm:  # fmt: skip
        """A callable for C = alpha op(A) op(B) + beta C of row-major matrices in device memory.

        op(A) is rows x inner, op(B) inner x cols. a, b, c are addresses; lda, ldb, ldc row strides,
        and stride_* the distances of the `batch` matrices, in elements. alpha is a float, or a
        device array of one element of the matrices' type.
        """

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """A new device array with undefined contents."""

    def upload(self, host: np.ndarray) -> Array:
        """A device copy of a host array; in a capture it is made at once, not recorded."""

    def pinned(self, num_bytes: int) -> np.ndarray:
        """Page-locked host memory, uint8, for `copy_from_pinned`. Any thread may call this."""

    def copy_from_pinned(self, dest: Array, source: np.ndarray, after: Event) -> Event:
        """Start copying uint8 bytes on the second stream after the event `after`.

        Returns the event of the finished copy. The source must not change before that event.
        """

    def record(self) -> Event:
        """An event that is reached when all work given to the main stream so far is done."""

    def wait(self, event: Event) -> None:
        """Let later work of the main stream begin after an event."""

    def strided(self, array: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
        """A view of an array with another shape and other strides, which are in bytes."""

    def memory(self) -> tuple[int, int]:
        """Free bytes and total bytes of device memory."""

    def side_by_side(self, steps: Sequence[Callable[[], Any]]) -> None:
        """Do independent steps; in a captured graph they may run in any order, or concurrently."""

    def capture(self, work: Callable[[], None], on_side_stream: bool = False) -> Callable[[], None]:
        """Record `work` instead of doing it, and return a callable that does it in one launch.

        With `on_side_stream` a launch goes to the side stream, after all work given to the main
        stream so far, and is registered in tensor/side_stream.py.
        """


_current: list[Device] = []


def get_device() -> Device:
    """The device in use: that of the innermost `use_device` block, else the CUDA device."""
    if not _current:
        cuda = importlib.import_module("nnet3tools.tensor.cuda.cuda")
        _current.append(cuda.CudaDevice())
    return _current[-1]


@contextlib.contextmanager
def use_device(device: Device) -> Iterator[Device]:
    """Let operators that are bound in the `with` block use `device`."""
    _current.append(device)
    try:
        yield device
    finally:
        _current.remove(device)


def pointer(array: Array) -> int:
    """The address of an array's first element."""
    return int(array.data.ptr)


PRELUDE = (Path(__file__).parent / "prelude.cuh").read_text()
"""Helper functions for kernels, the beginning of every compiled source."""
