"""How many bytes of matrices a program holds as it runs (Kaldi's GetMaxMemoryUse)."""

from __future__ import annotations

import numpy as np

from nnet3tools.program.commands import (
    AcceptInput,
    AllocMatrix,
    CompressionType,
    CompressMatrix,
    DeallocMatrix,
    DecompressMatrix,
)
from nnet3tools.program.computation import Computation

__all__ = ["max_memory_use", "memory_use"]

_BYTES = 4


def memory_use(computation: Computation) -> np.ndarray:
    """Bytes of matrices alive just after each command, shape (commands,).

    What the executor's own arena, precomputed indexes and the model take is not in it.
    """
    compressed: dict[int, int] = {}
    change = np.zeros(len(computation.commands), np.int64)
    for c, command in enumerate(computation.commands):
        if isinstance(command, AllocMatrix | AcceptInput):
            change[c] = _size(computation, command.submatrix)
        elif isinstance(command, DeallocMatrix):
            change[c] = -_size(computation, command.submatrix)
        elif isinstance(command, CompressMatrix):
            size = _size(computation, command.submatrix)
            one_byte = command.format in (CompressionType.INT8, CompressionType.UINT8)
            matrix = computation.matrix_of(command.submatrix)
            compressed[matrix] = size // _BYTES * (1 if one_byte else 2)
            change[c] = compressed[matrix] - size
        elif isinstance(command, DecompressMatrix):
            matrix = computation.matrix_of(command.submatrix)
            change[c] = _size(computation, command.submatrix) - compressed[matrix]
    return np.cumsum(change)


def max_memory_use(computation: Computation) -> int:
    """The most bytes of matrices that are alive at once."""
    return int(memory_use(computation).max(initial=0))


def _size(computation: Computation, submatrix: int) -> int:
    info = computation.submatrices[submatrix]
    return _BYTES * info.num_rows * info.num_cols
