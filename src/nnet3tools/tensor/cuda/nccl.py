"""Sums over GPUs of several processes by NVIDIA's library NCCL, which CuPy wraps."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

from nnet3tools.errors import UserError
from nnet3tools.tensor.addresses import address
from nnet3tools.tensor.cuda.device import Array


def new_id() -> bytes:
    """An identification of a new group of processes, for `Nccl`; UserError if NCCL is missing."""
    return bytes(_module().get_unique_id())


def _module() -> Any:
    with contextlib.suppress(ImportError, OSError):
        nccl = importlib.import_module("cupy.cuda.nccl")
        if nccl.available:
            return nccl
    raise UserError(
        "CuPy finds no NCCL, which several GPUs need: pip install nvidia-nccl-cu12 (or cu13)"
    )


class Nccl:
    """One process's part of a group of processes with one GPU each."""

    def __init__(self, group: bytes, rank: int, size: int) -> None:
        """Join the group that `new_id` named; waits until all `size` processes have joined."""
        self._nccl = _module()
        self._communicator = self._nccl.NcclCommunicator(size, group, rank)

    def sum(self, array: Array) -> None:
        """Set float32 `array` to the sum of all ranks' arrays, on the current CUDA stream.

        The same number of GPUs of a kind gives the same bytes.
        """
        import cupy

        stream, place = cupy.cuda.get_current_stream().ptr, address(array)
        kind, operation = self._nccl.NCCL_FLOAT32, self._nccl.NCCL_SUM
        self._communicator.allReduce(place, place, array.size, kind, operation, stream)
