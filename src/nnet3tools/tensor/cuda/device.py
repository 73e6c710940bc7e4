"""The thin interface between this backend and CUDA: everything else here is plain Python.

A Device compiles kernel sources, launches kernels, multiplies matrices and moves bytes. The real
one is in cuda.py; tests put in others, which record what is launched, or run it on the host.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

__all__ = [
    "PRELUDE",
    "Array",
    "Device",
    "Dim",
    "Event",
    "Gemm",
    "Kernel",
    "get_device",
    "pointer",
    "use_device",
]

Array = Any
Dim = tuple[int, int, int]
Kernel = Callable[[Dim, Dim, Sequence[Any]], None]
"""Called with grid, block and arguments: NumPy scalars, pointers as uint64."""


class Gemm(Protocol):
    """A product bound to operands: row-major C = alpha op(A) op(B) + beta C."""

    def __call__(self) -> None: ...


class Event(Protocol):
    """A point in a stream: all work given to it before."""

    def synchronize(self) -> None:
        """Let the host wait until that work is done. Any thread may call this."""


class Device(Protocol):
    """The abilities of a machine that runs kernels.

    All work goes to one stream in order, but for copies from pinned memory, which have a second.
    """

    num_processors: int
    """Blocks that can be busy at the same time, for choosing grids."""

    most_shared_bytes: int
    """Of shared memory that a block may have."""

    def kernel(self, source: str, name: str, shared_bytes: int = 0) -> Kernel:
        """The kernel `name` of a CUDA C++ source; compiled once, cached on disk.

        Its blocks get so much shared memory beside what the source declares.
        """

    def load(self, sources: Sequence[tuple[str, str]]) -> None:
        """Compile and load kernels (source, name) that are about to be asked for, side by side."""

    def gemm(
        self, dtype: np.dtype, rows: int, cols: int, inner: int, batch: int,
        a: int, lda: int, trans_a: bool, stride_a: int,
        b: int, ldb: int, trans_b: bool, stride_b: int,
        c: int, ldc: int, stride_c: int, alpha: Any, beta: float,
    ) -> Gemm:  # fmt: skip
        """The product of row-major matrices given by addresses and row strides (elements).

        alpha is a float, or a device array of one element of the matrices' type.
        """

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """A new device array."""

    def upload(self, host: np.ndarray) -> Array:
        """A device copy of a host array. During a capture it is made now, not by the graph."""

    def pinned(self, num_bytes: int) -> np.ndarray:
        """Page-locked host memory, uint8, for `copy_from_pinned`. Any thread may call this."""

    def copy_from_pinned(self, dest: Array, source: np.ndarray, after: Event) -> Event:
        """Begin a copy (uint8, contiguous) on the second stream, once `after` has come to pass.

        The source must stay as it is until the event that comes back: the copy is done then.
        """

    def record(self) -> Event:
        """All work given to the (first) stream so far."""

    def wait(self, event: Event) -> None:
        """Let work given to the (first) stream from here on begin after an event."""

    def strided(self, array: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
        """A view of an array with other shape and strides (bytes)."""

    def memory(self) -> tuple[int, int]:
        """Bytes that are free, and all there are."""

    def side_by_side(self, steps: Sequence[Callable[[], Any]]) -> None:
        """Do steps that do not wait for each other; a captured graph may run them in any order."""

    def capture(self, work: Callable[[], None], on_side_stream: bool = False) -> Callable[[], None]:
        """Record the work instead of doing it; what comes back does it all in one launch.

        With `on_side_stream` a launch goes to the side stream, after all work given to the main
        stream so far, and is registered in tensor/side_stream.py.
        """


_current: list[Device] = []


def get_device() -> Device:
    """The device in use; the real one unless `use_device` put another there."""
    if not _current:
        cuda = importlib.import_module("nnet3tools.tensor.cuda.cuda")
        _current.append(cuda.CudaDevice())
    return _current[-1]


@contextlib.contextmanager
def use_device(device: Device) -> Iterator[Device]:
    """Let operators bound in the `with` block use another device."""
    _current.append(device)
    try:
        yield device
    finally:
        _current.remove(device)


def pointer(array: Array) -> int:
    """Address of the first element."""
    return int(array.data.ptr)


PRELUDE = (Path(__file__).parent / "prelude.cuh").read_text()
"""Helper functions that generated kernels may use; it stands once before them."""
