"""When each matrix of a program is alive, and what its rows are about."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nnet3tools.nnet.indexes import NO_TIME
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.commands import (
    AcceptInput,
    CompressionType,
    CompressMatrix,
    DecompressMatrix,
)
from nnet3tools.program.computation import Computation

__all__ = ["Life", "matrix_lives", "matrix_subject"]

_NAMES_SHOWN = 3


class Life(NamedTuple):
    """A stretch of commands after each of which a matrix takes so many bytes."""

    matrix: int
    first: int
    last: int
    num_bytes: int


def matrix_lives(computation: Computation) -> list[Life]:
    """All stretches, by first command; a compressed matrix has one of its own.

    Their bytes at a command add up to program/memory.py's figure.
    """
    lives: list[Life] = []
    current: dict[int, tuple[int, int]] = {}

    def end(matrix: int, c: int) -> None:
        first, num_bytes = current.pop(matrix)
        if first < c:
            lives.append(Life(matrix, first, c - 1, num_bytes))

    def begin(matrix: int, c: int, bytes_each: int = 4) -> None:
        if matrix in current:
            end(matrix, c)
        rows, cols, _ = computation.matrices[matrix]
        current[matrix] = (c, rows * cols * bytes_each)

    for c, command in enumerate(computation.commands):
        if command.FREES is not None:
            matrix = computation.matrix_of(getattr(command, command.FREES))
            if matrix in current:
                end(matrix, c)
        if command.ALLOCATES is not None:
            begin(computation.matrix_of(getattr(command, command.ALLOCATES)), c)
        elif isinstance(command, AcceptInput):
            if (matrix := computation.matrix_of(command.submatrix)) not in current:
                begin(matrix, c)
        elif isinstance(command, CompressMatrix):
            one_byte = command.format in (CompressionType.INT8, CompressionType.UINT8)
            begin(computation.matrix_of(command.submatrix), c, 1 if one_byte else 2)
        elif isinstance(command, DecompressMatrix):
            begin(computation.matrix_of(command.submatrix), c)
    for matrix in list(current):
        end(matrix, len(computation.commands))
    return sorted(lives, key=lambda life: (life.first, life.matrix))


def matrix_subject(computation: Computation, nnet: Nnet, matrix: int) -> str:
    """Such as "derivative of tdnn1.relu, 32 sequences, t = -3..19"; "" if nothing is known."""
    if not computation.matrix_debug_info:
        return ""
    debug = computation.matrix_debug_info[matrix]
    if not len(debug.nodes):
        return ""
    _, first = np.unique(debug.nodes, return_index=True)
    names = [nnet.node_names[debug.nodes[i]] for i in np.sort(first).tolist()]
    if len(names) > _NAMES_SHOWN:
        names = [*names[:_NAMES_SHOWN], f"{len(names) - _NAMES_SHOWN} more"]
    text = ("derivative of " if debug.is_deriv else "") + ", ".join(names)
    num_sequences = len(np.unique(debug.indexes[:, 0]))
    if num_sequences > 1:
        text += f", {num_sequences} sequences"
    times = debug.indexes[:, 1]
    times = times[times != NO_TIME]
    if len(times):
        first_time, last_time = int(times.min()), int(times.max())
        span = f"{first_time}" if first_time == last_time else f"{first_time}..{last_time}"
        text += f", t = {span}"
    return text
