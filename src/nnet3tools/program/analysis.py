"""Analysis of a program: accesses to variables and matrices, lifetimes (nnet-analyze.h)."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import ProgramError
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.commands import AcceptInput, Command, ProvideOutput
from nnet3tools.program.component_facts import ComponentTable
from nnet3tools.program.computation import Computation
from nnet3tools.program.groups import CommandGroup
from nnet3tools.program.operands import Accesses, AccessType
from nnet3tools.program.variables import Variables

Ints = NDArray[np.int64]


class AccessTable(NamedTuple):
    """The accesses of commands to items (matrices, or variables), sorted by item, then by command.

    The accesses to item i are numbers offsets[i] to offsets[i + 1] - 1. `commands` and `types`
    have the command and the AccessType (as an integer) of each; a command has at most one
    access to an item.
    """

    offsets: Ints
    commands: Ints
    types: Ints

    def of_item(self, item: int) -> tuple[Ints, Ints]:
        """The commands that access a matrix or variable `item`, and the types of the accesses."""
        part = slice(self.offsets[item], self.offsets[item + 1])
        return self.commands[part], self.types[part]

    def first(self, default: int) -> Ints:
        """(items,) the first command that accesses each item; `default` if there is none."""
        used = self.offsets[1:] > self.offsets[:-1]
        out = np.full(len(used), default)
        out[used] = self.commands[self.offsets[:-1][used]]
        return out

    def last(self, default: int) -> Ints:
        """(items,) the last command that accesses each item; `default` if there is none."""
        used = self.offsets[1:] > self.offsets[:-1]
        out = np.full(len(used), default)
        out[used] = self.commands[self.offsets[1:][used] - 1]
        return out


def _access_table(
    things: Ints, commands: Ints, types: Ints, num_things: int, num_commands: int
) -> AccessTable:
    """An AccessTable of accesses in any order; accesses of a command to the same item are joined.

    Command commands[i] accesses item things[i]; types[i] is the AccessType as an integer.
    """
    keys = things * (num_commands + 1) + commands
    order = keys.argsort()
    keys, types = keys[order], types[order]
    new = np.ones(len(keys), bool)
    new[1:] = keys[1:] != keys[:-1]
    starts = new.nonzero()[0]
    joined = np.bitwise_or.reduceat(types, starts) if len(starts) else types
    thing, command = np.divmod(keys[starts], num_commands + 1)
    offsets = thing.searchsorted(np.arange(num_things + 1))
    return AccessTable(offsets, command, joined)


_NOTHING: Ints = np.empty((2, 0), np.int64)


class _Touches(NamedTuple):
    """All accesses of commands to submatrices in one program, in any order.

    Command commands[i] accesses submatrix submatrices[i]; kinds[i] is the AccessType as an integer.
    """

    commands: Ints
    submatrices: Ints
    kinds: Ints


def _touches(
    computation: Computation, components: ComponentTable, groups: dict[type[Command], CommandGroup]
) -> _Touches:
    """All accesses of a program's commands to submatrices; `groups` has the commands by class."""
    parts = [Accesses(_NOTHING[0], _NOTHING[0], AccessType.READ)]
    for cls, group in groups.items():
        parts += cls.accesses_of(group, computation, components)
    submatrices = np.concatenate([part.submatrices for part in parts])
    kinds, begin = np.empty(len(submatrices), np.int64), 0
    for part in parts:
        kinds[begin : begin + len(part.commands)] = part.kinds
        begin += len(part.commands)
    some = submatrices != 0
    commands = np.concatenate([part.commands for part in parts])
    return _Touches(commands[some], submatrices[some], kinds[some])


class Lifetimes(NamedTuple):
    """The commands at which the life of each of a program's matrices begins and ends.

    All arrays are (matrices,). The user supplies a matrix with `is_input`, and gets one with
    `is_output`. `allocate_command` is the first AcceptInput for inputs; `deallocate_command` is
    -1 if there is none.
    """

    is_input: NDArray[np.bool_]
    is_output: NDArray[np.bool_]
    allocate_command: Ints
    deallocate_command: Ints


class Analysis:
    """Facts about one program for the checker and the passes, each computed at first use.

    A changed program needs a new Analysis. `components` is the network's table of facts about
    components, if there is one.
    """

    def __init__(
        self, computation: Computation, nnet: Nnet, components: ComponentTable | None = None
    ) -> None:
        self.computation = computation
        self.components = components or ComponentTable(nnet)
        self.variables = Variables(computation)
        self.groups = computation.groups()
        """The commands by class."""

    @cached_property
    def _touches(self) -> _Touches:
        return _touches(self.computation, self.components, self.groups)

    @cached_property
    def touches(self) -> NDArray[np.bool_]:
        """(commands,) whether each command reads or writes elements of a matrix."""
        num_commands = len(self.computation.commands)
        return np.bincount(self._touches.commands, minlength=num_commands) > 0

    @cached_property
    def variable_accesses(self) -> AccessTable:
        """The accesses of all commands to variables (blocks of matrices)."""
        commands, submatrices, kinds = self._touches
        owner, variable = self.variables.of_submatrices(submatrices)
        return _access_table(
            variable,
            commands[owner],
            kinds[owner],
            self.variables.num_variables,
            len(self.computation.commands),
        )

    @cached_property
    def matrix_accesses(self) -> AccessTable:
        """The accesses of all commands to matrices."""
        commands, submatrices, kinds = self._touches
        # A write to a part keeps the rest, so for the matrix it is a read and a write.
        partial = ~self.variables.is_whole[submatrices] & (kinds == int(AccessType.WRITE))
        return _access_table(
            self.variables.matrix_of_submatrix[submatrices],
            commands,
            np.where(partial, int(AccessType.READ_WRITE), kinds),
            len(self.computation.matrices),
            len(self.computation.commands),
        )

    @cached_property
    def lifetimes(self) -> Lifetimes:
        """Lifetimes of matrices; ProgramError if one is allocated or freed twice, as in loops."""
        size = len(self.computation.matrices)
        is_input, is_output = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
        allocations, frees = [_NOTHING], [_NOTHING]
        accepts = _NOTHING
        for cls, group in self.groups.items():
            if cls.ALLOCATES is not None:
                allocations.append(self._matrices_of(group, cls.ALLOCATES))
            if cls.FREES is not None:
                frees.append(self._matrices_of(group, cls.FREES))
            if cls is AcceptInput:
                accepts = self._matrices_of(group, "submatrix")
                is_input[accepts[1]] = True
            elif cls is ProvideOutput:
                is_output[self._matrices_of(group, "submatrix")[1]] = True
        allocate = self._positions(allocations, "allocated")
        deallocate = self._positions(frees, "deallocated")
        first_accept = np.full(size, -1)
        first_accept[accepts[1, ::-1]] = accepts[0, ::-1]
        unmade = allocate == -1
        allocate[unmade] = first_accept[unmade]
        return Lifetimes(is_input, is_output, allocate, deallocate)

    def _matrices_of(self, group: CommandGroup, operand: str) -> Ints:
        """(2, n): the n commands of `group`, and the matrices that contain their `operand`."""
        matrices = self.variables.matrix_of_submatrix[group.column(operand)]
        return np.array([group.positions, matrices])

    def _positions(self, parts: list[Ints], what: str) -> Ints:
        """(matrices,) the command of each matrix in `parts`, arrays (2, n) of command, matrix.

        -1 is for no command. ProgramError if a matrix has two; `what`, such as "allocated",
        names the fault.
        """
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


class Analyst:
    """Analyzes the programs of one network, and caches the latest analysis.

    The next pass, or the checker, mostly needs the analysis of the same program. A program must not
    be changed after it has been analyzed.
    """

    def __init__(self, nnet: Nnet, components: ComponentTable | None = None) -> None:
        self.nnet = nnet
        self.components = components or ComponentTable(nnet)
        self._latest: Analysis | None = None

    def analyze(self, computation: Computation) -> Analysis:
        """The analysis of a program."""
        if self._latest is None or self._latest.computation is not computation:
            self._latest = Analysis(computation, self.nnet, self.components)
        return self._latest
