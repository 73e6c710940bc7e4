"""Storage of each matrix over the commands of a program, its bytes, and a text of its rows."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools.nnet.indexes import NO_TIME
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.commands import (
    AcceptInput,
    CompressionType,
    CompressMatrix,
    DecompressMatrix,
    SwapMatrix,
)
from nnet3tools.program.computation import Computation

_NAMES_SHOWN = 3


_COMPRESSED: dict[int, str] = {
    CompressionType.INT8: "int8",
    CompressionType.UINT8: "uint8",
    CompressionType.INT16: "int16",
    CompressionType.UINT16: "uint16",
}


class Storage(NamedTuple):
    """A block of memory for one matrix in one number format.

    `matrix` is the matrix that it was made for; SwapMatrix may give it to another matrix.
    """

    matrix: int
    dtype: str
    num_bytes: int


class Holdings:
    """A table that says in which Storage each matrix is after each command of a program."""

    def __init__(self, computation: Computation) -> None:
        self.storages: list[Storage] = []
        self._matrices = computation.matrices
        self._since: list[list[int]] = [[] for _ in self._matrices]
        self._storage: list[list[int]] = [[] for _ in self._matrices]

    def after(self, command: int, matrix: int) -> int:
        """The index in `storages` of a matrix's memory after a command; -1 if it has none."""
        entry = bisect.bisect_right(self._since[matrix], command) - 1
        return self._storage[matrix][entry] if entry >= 0 else -1

    def make(self, command: int, matrix: int, dtype: str = "float32") -> None:
        """Record that a matrix is in a new Storage, of element type `dtype`, from `command` on."""
        info = self._matrices[matrix]
        num_bytes = info.num_rows * info.num_cols * np.dtype(dtype).itemsize
        self.storages.append(Storage(matrix, dtype, num_bytes))
        self.hold(command, matrix, len(self.storages) - 1)

    def hold(self, command: int, matrix: int, storage: int) -> None:
        """Record that a matrix is in storages[storage] (-1: in none) from command `command` on."""
        self._since[matrix].append(command)
        self._storage[matrix].append(storage)

    def latest(self, matrix: int) -> int:
        """The number, in `storages`, of the Storage recorded last for a matrix; -1 for none."""
        return self._storage[matrix][-1] if self._storage[matrix] else -1

    def lives(self, num_commands: int) -> Iterator[Life]:
        """For each matrix, the ranges of commands after which it stays in one Storage (memory).

        `num_commands` is the number of commands of the program, at which the last lives end.
        """
        for matrix, since in enumerate(self._since):
            ends = [*since[1:], num_commands]
            for storage, first, end in zip(self._storage[matrix], since, ends, strict=False):
                if storage >= 0 and first < end:
                    yield Life(matrix, first, end - 1, self.storages[storage].num_bytes)


def follow_matrices(
    computation: Computation, obeys: Callable[[CompressMatrix], bool] = lambda command: True
) -> Holdings:
    """The memory (Storage) that holds each matrix after each command of a program.

    SwapMatrix swaps the storages of two matrices. A compressed matrix gets a new one, unless
    `obeys` returns False for the CompressMatrix command: the executor may ignore it.
    """
    holdings, matrix_of = Holdings(computation), computation.matrix_of
    for c, command in enumerate(computation.commands):
        if isinstance(command, SwapMatrix):
            a, b = matrix_of(command.a), matrix_of(command.b)
            of_a, of_b = holdings.latest(a), holdings.latest(b)
            holdings.hold(c, a, of_b)
            holdings.hold(c, b, of_a)
        elif command.ALLOCATES is not None:
            holdings.make(c, matrix_of(getattr(command, command.ALLOCATES)))
        elif command.FREES is not None:
            holdings.hold(c, matrix_of(getattr(command, command.FREES)), -1)
        elif isinstance(command, AcceptInput):
            if holdings.latest(matrix := matrix_of(command.submatrix)) < 0:
                holdings.make(c, matrix)
        elif isinstance(command, CompressMatrix):
            if obeys(command):
                holdings.make(c, matrix_of(command.submatrix), _COMPRESSED[command.format])
        elif isinstance(command, DecompressMatrix):
            matrix = matrix_of(command.submatrix)
            if holdings.storages[holdings.latest(matrix)].dtype != "float32":
                holdings.make(c, matrix)
    return holdings


class Life(NamedTuple):
    """A range of commands, after each of which a matrix takes `num_bytes` of memory."""

    matrix: int
    first: int
    last: int
    num_bytes: int


def matrix_lives(computation: Computation) -> list[Life]:
    """The Life of each matrix in memory, sorted by first command; compressing begins a new one."""
    lives = follow_matrices(computation).lives(len(computation.commands))
    return sorted(lives, key=lambda life: (life.first, life.matrix))


def memory_use(computation: Computation) -> NDArray[np.int64]:
    """Bytes of matrices alive just after each command, shape (commands,).

    The executor's scratch memory, precomputed indexes and the model are not included.
    """
    change = np.zeros(len(computation.commands) + 1, np.int64)
    for life in matrix_lives(computation):
        change[life.first] += life.num_bytes
        change[life.last + 1] -= life.num_bytes
    return np.cumsum(change[:-1])


def max_memory_use(computation: Computation) -> int:
    """The largest number of bytes of matrices alive at once (Kaldi's GetMaxMemoryUse)."""
    return int(memory_use(computation).max(initial=0))


def matrix_subject(computation: Computation, nnet: Nnet, matrix: int) -> str:
    """What a matrix is, as text: "derivative of tdnn1.relu, 32 sequences, t = -3..19" or ""."""
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
