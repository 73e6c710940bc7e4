"""Uses of memory in a program: variables, accesses, lifetimes (Kaldi's nnet-analyze.h).

A *variable* is a block of a matrix; the blocks of a matrix are the coarsest ones from which every
submatrix can be put together. Everything is arrays in CSR form, built once for a program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import ProgramError
from nnet3tools.graph.tables import concatenated_ranges, sorted_unique
from nnet3tools.program.command import AccessType
from nnet3tools.program.commands import AcceptInput, Command, ProvideOutput
from nnet3tools.program.component_facts import ComponentTable
from nnet3tools.program.computation import Computation, SubMatrixInfo
from nnet3tools.program.groups import CommandGroup, group_commands

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet

__all__ = ["AccessTable", "Analysis", "Variables"]

Ints = NDArray[np.int64]


class _Splits(NamedTuple):
    """Where the rows (or columns) of each matrix are cut."""

    points: Ints
    """Cut positions, matrix after matrix, ascending, both ends of the matrix included."""
    offsets: Ints
    """(matrices + 1,) where each matrix's positions begin in `points`."""
    first: Ints
    """(submatrices,) cut at which each submatrix begins, counted within its matrix."""
    last: Ints
    """(submatrices,) cut at which it ends."""


def _split(matrix: Ints, begin: Ints, end: Ints, num_matrices: int, sizes: Ints) -> _Splits:
    """Cut every matrix wherever one of its submatrices begins or ends."""
    width = int(sizes.max(initial=0)) + 1
    keys_begin, keys_end = matrix * width + begin, matrix * width + end
    keys = sorted_unique(np.concatenate([keys_begin, keys_end]))
    offsets = np.searchsorted(keys, np.arange(num_matrices + 1) * width)
    first = np.searchsorted(keys, keys_begin) - offsets[matrix]
    last = np.searchsorted(keys, keys_end) - offsets[matrix]
    return _Splits(keys % width, offsets, first, last)


class Variables:
    """The variables of a program and which of them make up each submatrix."""

    def __init__(self, computation: Computation) -> None:
        sub, matrices = computation.submatrix_table(), computation.matrix_sizes()
        self._sub = sub
        matrix = sub[:, 0]
        self._rows = _split(matrix, sub[:, 1], sub[:, 1] + sub[:, 2], len(matrices), matrices[:, 0])
        self._cols = _split(matrix, sub[:, 3], sub[:, 3] + sub[:, 4], len(matrices), matrices[:, 1])
        num_rows = np.maximum(np.diff(self._rows.offsets) - 1, 0)
        num_cols = np.maximum(np.diff(self._cols.offsets) - 1, 0)
        num_rows[:1] = 0  # matrix 0 is none
        self._num_col_variables = num_cols
        self.matrix_offsets: Ints = np.concatenate([[0], np.cumsum(num_rows * num_cols)])
        """(matrices + 1,) first variable of each matrix."""
        self.num_variables = int(self.matrix_offsets[-1])
        self.matrix_of: Ints = np.repeat(np.arange(len(matrices)), num_rows * num_cols)
        """(variables,) matrix each lies in."""
        size = matrices[matrix]
        self.is_whole: NDArray[np.bool_] = (
            (sub[:, 1] == 0)
            & (sub[:, 3] == 0)
            & (sub[:, 2] == size[:, 0])
            & (sub[:, 4] == size[:, 1])
        )
        """(submatrices,) whether each is all of its matrix."""
        self.matrix_of_submatrix: Ints = matrix
        self._build_submatrix_table()

    def _build_submatrix_table(self) -> None:
        """Variables of each submatrix, CSR: `_variables[_offsets[s]:_offsets[s + 1]]`."""
        height = self._rows.last - self._rows.first
        width = self._cols.last - self._cols.first
        height[:1] = 0
        matrix = self.matrix_of_submatrix
        # First one entry a row of blocks, then those blocks themselves.
        owner = np.repeat(np.arange(len(height)), height)
        row = concatenated_ranges(self._rows.first, height)
        start = (
            self.matrix_offsets[matrix[owner]]
            + row * self._num_col_variables[matrix[owner]]
            + self._cols.first[owner]
        )
        self._variables = concatenated_ranges(start, width[owner])
        self._offsets = np.concatenate([[0], np.cumsum(height * width)])

    def of_submatrix(self, submatrix: int) -> Ints:
        """Variables that make up a submatrix, ascending."""
        return self._variables[self._offsets[submatrix] : self._offsets[submatrix + 1]]

    def of_submatrices(self, submatrices: Ints) -> tuple[Ints, Ints]:
        """Variables of many submatrices: (position in `submatrices`, variable), both (M,)."""
        start = self._offsets[submatrices]
        count = self._offsets[submatrices + 1] - start
        owner = np.repeat(np.arange(len(submatrices)), count)
        return owner, self._variables[concatenated_ranges(start, count)]

    def of_matrix(self, matrix: int) -> range:
        """Variables of a matrix."""
        return range(int(self.matrix_offsets[matrix]), int(self.matrix_offsets[matrix + 1]))

    def block(self, variable: int) -> SubMatrixInfo:
        """The block that a variable is."""
        matrix = int(self.matrix_of[variable])
        offset = variable - int(self.matrix_offsets[matrix])
        row, col = divmod(offset, int(self._num_col_variables[matrix]))
        r = self._rows.points[self._rows.offsets[matrix] + row :][:2]
        c = self._cols.points[self._cols.offsets[matrix] + col :][:2]
        return SubMatrixInfo(matrix, int(r[0]), int(r[1] - r[0]), int(c[0]), int(c[1] - c[0]))

    def describe(self, variable: int, computation: Computation) -> str:
        """Such as "m3" or "m3(0:9,:)"."""
        matrix, row, num_rows, col, num_cols = self.block(variable)
        size = computation.matrices[matrix]
        if (num_rows, num_cols) == size[:2]:
            return f"m{matrix}"
        rows = ":" if num_rows == size.num_rows else f"{row}:{row + num_rows - 1}"
        cols = ":" if num_cols == size.num_cols else f"{col}:{col + num_cols - 1}"
        return f"m{matrix}({rows},{cols})"


class AccessTable(NamedTuple):
    """Accesses to things (variables or matrices), thing after thing, each in command order."""

    offsets: Ints
    """(things + 1,) where the accesses of each begin."""
    commands: Ints
    """Command of each access; at most one access a command and thing."""
    types: Ints
    """AccessType of each access, as an integer."""

    def of(self, thing: int) -> tuple[Ints, Ints]:
        """(commands, types) of one variable or matrix."""
        part = slice(self.offsets[thing], self.offsets[thing + 1])
        return self.commands[part], self.types[part]

    def first(self, default: int) -> Ints:
        """First command that accesses each thing, `default` where there is none."""
        used = self.offsets[1:] > self.offsets[:-1]
        out = np.full(len(used), default)
        out[used] = self.commands[self.offsets[:-1][used]]
        return out

    def last(self, default: int) -> Ints:
        """Last command that accesses each thing, `default` where there is none."""
        used = self.offsets[1:] > self.offsets[:-1]
        out = np.full(len(used), default)
        out[used] = self.commands[self.offsets[1:][used] - 1]
        return out


def _access_table(
    things: Ints, commands: Ints, types: Ints, num_things: int, num_commands: int
) -> AccessTable:
    """Sort single accesses by thing and command and join those of the same command."""
    keys = things * (num_commands + 1) + commands
    order = np.argsort(keys, kind="stable")
    keys, types = keys[order], types[order]
    new = np.ones(len(keys), bool)
    new[1:] = keys[1:] != keys[:-1]
    starts = np.flatnonzero(new)
    joined = np.bitwise_or.reduceat(types, starts) if len(starts) else types
    thing, command = np.divmod(keys[starts], num_commands + 1)
    offsets = np.searchsorted(thing, np.arange(num_things + 1))
    return AccessTable(offsets, command, joined)


_NOTHING: Ints = np.empty((2, 0), np.int64)


def _accesses(
    computation: Computation, nnet: Nnet, groups: dict[type[Command], CommandGroup]
) -> tuple[Ints, Ints, Ints]:
    """(command, submatrix, AccessType) of every access, in no order; built class by class."""
    components = ComponentTable(nnet)
    commands, submatrices, kinds = [_NOTHING[0]], [_NOTHING[0]], [_NOTHING[0]]
    for cls, group in groups.items():
        for accesses in cls.accesses_of(group, computation, components):
            commands.append(group.positions[accesses.which])
            submatrices.append(accesses.submatrices)
            kind = accesses.kinds
            if isinstance(kind, AccessType):
                kind = np.full(len(accesses.which), int(kind))
            kinds.append(kind)
    submatrix = np.concatenate(submatrices)
    some = submatrix != 0
    return np.concatenate(commands)[some], submatrix[some], np.concatenate(kinds)[some]


class Analysis:
    """Everything that checker and passes ask about one program; changes to it need a new one.

    `lifetimes=False` leaves out when matrices are allocated, which in looped programs, where swaps
    do it again for the next round, has no one answer.
    """

    def __init__(self, computation: Computation, nnet: Nnet, lifetimes: bool = True) -> None:
        self.computation = computation
        self.variables = Variables(computation)
        num_commands = len(computation.commands)
        self.groups = group_commands(computation.commands)
        """The commands class by class."""
        command, submatrix, kind = _accesses(computation, nnet, self.groups)
        self.touches: NDArray[np.bool_] = np.bincount(command, minlength=num_commands) > 0
        """(commands,) whether each reads or writes any matrix."""
        owner, variable = self.variables.of_submatrices(submatrix)
        self.variable_accesses = _access_table(
            variable, command[owner], kind[owner], self.variables.num_variables, num_commands
        )
        # A write to a part leaves the rest as it was: for the matrix that is a read and a write.
        partial = ~self.variables.is_whole[submatrix] & (kind == AccessType.WRITE)
        self.matrix_accesses = _access_table(
            self.variables.matrix_of_submatrix[submatrix],
            command,
            np.where(partial, int(AccessType.READ_WRITE), kind),
            len(computation.matrices),
            num_commands,
        )
        if lifetimes:
            self._find_lifetimes()

    def _find_lifetimes(self) -> None:
        """Fill allocate / deallocate commands and input / output marks; ProgramError if double."""
        size = len(self.computation.matrices)
        self.is_input = np.zeros(size, bool)
        self.is_output = np.zeros(size, bool)
        allocations, frees = [_NOTHING], [_NOTHING]
        accepts = _NOTHING
        for cls, group in self.groups.items():
            if cls.ALLOCATES is not None:
                allocations.append(self._matrices_of(group, cls.ALLOCATES))
            if cls.FREES is not None:
                frees.append(self._matrices_of(group, cls.FREES))
            if cls is AcceptInput:
                accepts = self._matrices_of(group, "submatrix")
                self.is_input[accepts[1]] = True
            elif cls is ProvideOutput:
                self.is_output[self._matrices_of(group, "submatrix")[1]] = True
        self.allocate_command = self._positions(allocations, "allocated")
        """(matrices,) command that brings each into being (the first AcceptInput of inputs)."""
        self.deallocate_command = self._positions(frees, "deallocated")
        """(matrices,) command that frees each, -1 if none."""
        first_accept = np.full(size, -1)
        first_accept[accepts[1, ::-1]] = accepts[0, ::-1]
        unmade = self.allocate_command == -1
        self.allocate_command[unmade] = first_accept[unmade]

    def _matrices_of(self, group: CommandGroup, operand: str) -> Ints:
        """(2, n): these commands, and the matrices that an operand of theirs lies in."""
        matrices = self.variables.matrix_of_submatrix[group.column(operand)]
        return np.stack([group.positions, matrices])

    def _positions(self, parts: list[Ints], what: str) -> Ints:
        """(matrices,) the one command listed for each, -1 if none."""
        commands, matrices = np.concatenate(parts, axis=1)
        out = np.full(len(self.computation.matrices), -1)
        out[matrices] = commands
        if (out[matrices] != commands).any():
            order = np.argsort(commands)
            matrix = matrices[order]
            again = next(i for i, m in enumerate(matrix) if m in matrix[:i])
            first = commands[order[np.flatnonzero(matrix == matrix[again])[0]]]
            raise ProgramError(
                f"command c{commands[order[again]]}: m{matrix[again]} is {what} twice "
                f"(first by c{first})"
            )
        return out
