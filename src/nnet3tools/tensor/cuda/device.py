"""The device in use: a CudaDevice (cuda.py), or in tests a wrapper of one."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nnet3tools.tensor.cuda.cuda import CudaDevice

Array = Any
Dim = tuple[int, int, int]
Gemm = Callable[[], None]
"""A matrix product bound to operands: row-major C = alpha op(A) op(B) + beta C."""
Kernel = Callable[[Dim, Dim, Sequence[Any]], None]
"""Called with grid, block and arguments: NumPy scalars, pointers as uint64."""

_current: list[CudaDevice] = []


def get_device() -> CudaDevice:
    """The device in use: that of the innermost `use_device` block, else the CUDA device."""
    if not _current:
        cuda = importlib.import_module("nnet3tools.tensor.cuda.cuda")
        _current.append(cuda.CudaDevice())
    return _current[-1]


@contextlib.contextmanager
def use_device(device: CudaDevice) -> Iterator[CudaDevice]:
    """Let operators that are called or bound to operands in the `with` block use `device`."""
    _current.append(device)
    try:
        yield device
    finally:
        _current.remove(device)


PRELUDE = (Path(__file__).parent / "prelude.cuh").read_text()
"""Helper functions for kernels, the beginning of every compiled source."""
