"""AccessTimes: the first and last commands that access submatrices."""

import numpy as np
from numpy.typing import NDArray

from nnet3tools.nnet.indexes import BoolArray
from nnet3tools.program.analysis import Analysis
from nnet3tools.program.commands import Command, SetConst
from nnet3tools.program.operands import AccessType

Ints = NDArray[np.int64]


def is_zeroing(command: Command) -> bool:
    """Whether a command sets a submatrix to zero, as the compiler does after each allocation."""
    return type(command) is SetConst and command.value == 0.0


def zeroings(analysis: Analysis) -> BoolArray:
    """(commands,) whether each command of a program sets a submatrix to zero."""
    zeroing = np.zeros(len(analysis.computation.commands), np.bool_)
    if (constants := analysis.groups.get(SetConst)) is not None:
        zeroing[constants.positions] = constants.alphas() == 0.0
    return zeroing


class AccessTimes:
    """Positions of accesses to the submatrices of one program (Kaldi's ComputationAnalysis).

    Methods take arrays of submatrices, none of which may be 0, and return a command for each. The
    number of commands, `end`, means "never" for a first access, "after all" for a last one.
    """

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.end = len(analysis.computation.commands)
        table = analysis.variable_accesses
        variable = np.arange(len(table.offsets) - 1).repeat(table.offsets[1:] - table.offsets[:-1])
        nontrivial = ~zeroings(analysis)[table.commands]
        # Accesses are sorted by command, so the last of repeated assignments stays.
        self._first = np.full(analysis.variables.num_variables, self.end)
        self._first[variable[nontrivial][::-1]] = table.commands[nontrivial][::-1]
        self._last = table.last(-1)
        writes = (table.types & AccessType.WRITE) != 0
        self._write_commands = table.commands[writes]
        self._write_keys = variable[writes] * (self.end + 1) + self._write_commands
        counts = np.bincount(variable[writes], minlength=len(self._first))
        self._write_ends = counts.cumsum()
        self._last_write = np.full(len(self._first), -1)
        self._last_write[variable[writes]] = self._write_commands

    def variables(self, submatrix: int) -> Ints:
        """The variables (blocks of a matrix) that make up a submatrix."""
        return self.analysis.variables.of_submatrix(submatrix)

    def first_nontrivial_access(self, submatrices: Ints) -> Ints:
        """For each submatrix, the first command but zeroing that accesses it, or `end`."""
        return self._over_variables(np.minimum, self._first, submatrices)

    def last_access(self, submatrices: Ints) -> Ints:
        """For each submatrix, the last command that accesses a part of it; -1 if there is none."""
        return self._over_variables(np.maximum, self._last, submatrices)

    def last_write_access(self, submatrices: Ints) -> Ints:
        """For each submatrix, the last command that writes in it; -1 if there is none.

        If the matrix is an output of the program, the result is `end`, the number of commands.
        """
        last = self._over_variables(np.maximum, self._last_write, submatrices)
        matrices = self.analysis.variables.matrix_of_submatrix[submatrices]
        return np.where(self.analysis.lifetimes.is_output[matrices], self.end, last)

    def data_invalidated(self, positions: Ints, submatrices: Ints) -> Ints:
        """For each i, the first command after positions[i] that changes or frees submatrices[i].

        If there is none, the result is `self.end`, the number of commands.
        """
        variables = self.analysis.variables
        owner, variable = variables.of_submatrices(submatrices)
        keys = variable * (self.end + 1) + positions[owner]
        next_write = self._write_keys.searchsorted(keys, "right")
        written = np.full(len(next_write), self.end)
        again = next_write < self._write_ends[variable]
        written[again] = self._write_commands[next_write[again]]
        matrices = variables.matrix_of_submatrix[submatrices]
        freed = self.analysis.lifetimes.deallocate_command[matrices]
        return np.minimum(
            _reduced(np.minimum, written, owner, len(submatrices)),
            np.where(freed == -1, self.end, freed),
        )

    def _over_variables(self, reduction: np.ufunc, times: Ints, submatrices: Ints) -> Ints:
        owner, variable = self.analysis.variables.of_submatrices(submatrices)
        return _reduced(reduction, times[variable], owner, len(submatrices))


def _reduced(reduction: np.ufunc, values: Ints, owner: Ints, count: int) -> Ints:
    """(count,) `reduction`, such as np.minimum, of each owner's values; owner[i] has values[i]."""
    if count == 0:
        return np.empty(0, np.int64)
    return reduction.reduceat(values, owner.searchsorted(np.arange(count)))
