"""When submatrices are first and last touched: the questions that passes ask of an analysis."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.analysis import Analysis, concatenated_ranges
from nnet3tools.program.command import AccessType
from nnet3tools.program.commands import Command, SetConst
from nnet3tools.program.computation import Computation

__all__ = ["AccessTimes", "is_zeroing"]


def is_zeroing(command: Command) -> bool:
    """Whether a command sets a submatrix to zero, as follows every allocation at first."""
    return type(command) is SetConst and command.value == 0.0


class AccessTimes:
    """Positions of accesses to the submatrices of one program (Kaldi's ComputationAnalysis).

    `end`, the number of commands, stands for "never" where a first access is asked for and for
    "after everything" where a last one is.
    """

    def __init__(self, computation: Computation, nnet: Nnet) -> None:
        self.analysis = analysis = Analysis(computation, nnet)
        self.end = len(computation.commands)
        table = analysis.variable_accesses
        variable = np.repeat(np.arange(len(table.offsets) - 1), np.diff(table.offsets))
        zeroing = np.array([is_zeroing(c) for c in computation.commands], np.bool_)
        nontrivial = ~zeroing[table.commands]
        # Accesses are in the order of commands, so of repeated assignments the last one stays.
        self._first = np.full(analysis.variables.num_variables, self.end)
        self._first[variable[nontrivial][::-1]] = table.commands[nontrivial][::-1]
        self._last = table.last(-1)
        writes = (table.types & AccessType.WRITE) != 0
        self._write_commands = table.commands[writes]
        counts = np.bincount(variable[writes], minlength=len(self._first))
        self._write_offsets = np.concatenate([[0], np.cumsum(counts)])
        self._last_write = np.full(len(self._first), -1)
        self._last_write[variable[writes]] = self._write_commands

    def variables(self, submatrix: int) -> NDArray[np.int64]:
        """The variables that make up a submatrix."""
        return self.analysis.variables.of_submatrix(submatrix)

    def first_nontrivial_access(self, submatrix: int) -> int:
        """First command, zeroing aside, that touches any of a submatrix."""
        return int(self._first[self.variables(submatrix)].min())

    def last_access(self, submatrix: int) -> int:
        """Last command that touches any of a submatrix; -1 if none does."""
        return int(self._last[self.variables(submatrix)].max())

    def last_write_access(self, submatrix: int) -> int:
        """Last command that writes any of a submatrix; `end` for outputs; -1 if none does."""
        if self.analysis.is_output[self.analysis.computation.matrix_of(submatrix)]:
            return self.end
        return int(self._last_write[self.variables(submatrix)].max())

    def data_invalidated(self, position: int, submatrix: int) -> int:
        """First command after `position` that writes any of a submatrix or frees its matrix."""
        freed = self.analysis.deallocate_command[self.analysis.computation.matrix_of(submatrix)]
        variables = self.variables(submatrix)
        start = self._write_offsets[variables]
        writes = self._write_commands[
            concatenated_ranges(start, self._write_offsets[variables + 1] - start)
        ]
        later = writes[writes > position]
        return min(int(later.min(initial=self.end)), self.end if freed == -1 else int(freed))
