"""The checks of single commands: operand ranges, sizes, aliasing."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import ProgramError
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.analysis import Analysis
from nnet3tools.program.command import Command
from nnet3tools.program.printing import command_text

Ints = NDArray[np.int64]


class OperandChecker:
    """Checks the operands of each command of a program; ProgramError at the first fault."""

    def __init__(self, analysis: Analysis, nnet: Nnet) -> None:
        self.analysis, self.nnet = analysis, nnet
        self.computation, self.components = analysis.computation, analysis.components
        computation = self.computation
        self.submatrix_table = analysis.variables.submatrix_table
        self._limits = {
            "Submatrix": len(computation.submatrices),
            "Indexes": len(computation.indexes),
            "IndexesMulti": len(computation.indexes_multi),
            "IndexesRanges": len(computation.indexes_ranges),
            "Precomputed": len(computation.component_precomputed_indexes),
            "Component": len(nnet.component_names),
            "Node": len(nnet.node_names),
        }

    def fail(self, message: str, command: int | None = None) -> NoReturn:
        """Raise ProgramError with a message and, if given, the text of the command."""
        if command is None:
            raise ProgramError(f"broken program: {message}")
        try:
            text = command_text(self.computation, self.nnet, command)
        except (IndexError, TypeError):  # an operand is out of range: there are no names for it
            text = f"c{command}: {self.computation.commands[command]}"
        raise ProgramError(f"broken program: {message} in command {text}")

    # -- for commands' `problem`

    def rows(self, submatrix: int) -> int:
        """The number of rows of a submatrix."""
        return self.computation.submatrices[submatrix].num_rows

    def cols(self, submatrix: int) -> int:
        """The number of columns of a submatrix."""
        return self.computation.submatrices[submatrix].num_cols

    def same(self, a: int, b: int) -> bool:
        """Whether two submatrices are the same block of the same matrix."""
        return self.computation.submatrices[a] == self.computation.submatrices[b]

    def overlap(self, a: int, b: int) -> bool:
        """Whether two submatrices share elements."""
        x, y = self.computation.submatrices[a], self.computation.submatrices[b]
        return (
            x.matrix_index == y.matrix_index
            and x.row_offset < y.row_offset + y.num_rows
            and y.row_offset < x.row_offset + x.num_rows
            and x.col_offset < y.col_offset + y.num_cols
            and y.col_offset < x.col_offset + x.num_cols
        )

    def size_problem(self, a: int, b: int) -> str:
        """A message if two submatrices differ in size, else ""."""
        x, y = self.computation.submatrices[a], self.computation.submatrices[b]
        if x.num_rows == y.num_rows and x.num_cols == y.num_cols:
            return ""
        return f"sizes {x.num_rows} x {x.num_cols} and {y.num_rows} x {y.num_cols} differ"

    def overlap_problem(self, dest: int, src: int) -> str:
        """A message if a command's submatrices `dest` and `src` share elements, else ""."""
        return "source and destination overlap" if self.overlap(dest, src) else ""

    # -- each command by itself

    def check_operands(self) -> None:
        """Raise ProgramError for faults of submatrices, or of operands' ranges, sizes, aliasing."""
        self._check_submatrices()
        all_in_range = self._all_in_range()
        if not all_in_range:
            for c, command in enumerate(self.computation.commands):
                self._check_ranges(c, command)
        problems = [
            (c, problem)
            for cls, group in self.analysis.groups.items()
            if cls.problem is not Command.problem
            for c, command in zip(group.positions.tolist(), group.commands, strict=True)
            if (problem := command.problem(self))
        ]
        if problems:
            c, problem = min(problems)
            self.fail(problem, c)

    def _limits_of(self, cls: type[Command]) -> list[tuple[str, int, int]]:
        """(name, lowest value, highest + 1) of operands that are indexes, such as submatrices."""
        return [
            (name, int(kind == "Submatrix" and name not in cls.OPTIONAL), self._limits[kind])
            for name, kind in cls.OPERANDS.items()
            if kind in self._limits
        ]

    def _all_in_range(self) -> bool:
        """Whether all operands of all commands are in range, tested with whole arrays."""
        columns: dict[tuple[int, int], list[Ints]] = {}
        whole = [np.zeros(0, np.int64)]
        for cls, group in self.analysis.groups.items():
            for name, low, end in self._limits_of(cls):
                columns.setdefault((low, end), []).append(group.column(name))
            whole += [group.column(name) for name in cls.WHOLE]
        for (low, end), parts in columns.items():
            values = np.concatenate(parts)
            if int(values.min()) < low or int(values.max()) >= end:
                return False
        return bool(self.analysis.variables.is_whole[np.concatenate(whole)].all())

    def _check_ranges(self, c: int, command: Command) -> None:
        for name, low, end in self._limits_of(type(command)):
            value = getattr(command, name)
            if not low <= value < end:
                self.fail(f"{name} {value} is not in {low}..{end - 1}", c)
        for name in command.WHOLE:
            if not self.computation.is_whole_matrix(getattr(command, name)):
                self.fail(f"{name} is not the whole of a matrix", c)

    def _check_submatrices(self) -> None:
        """Raise ProgramError unless every submatrix lies within its matrix."""
        table, sizes = self.submatrix_table[1:], self.computation.matrix_sizes()
        matrix = table[:, 0]
        bad = (matrix < 1) | (matrix >= len(sizes))
        size = sizes[np.where(bad, 0, matrix)]
        bad |= (table[:, 1::2] < 0).any(axis=1) | (table[:, 2::2] < 1).any(axis=1)
        bad |= (table[:, 1::2] + table[:, 2::2] > size).any(axis=1)
        if bad.any():
            s = 1 + int(np.argmax(bad))
            self.fail(f"submatrix {s}, {self.computation.submatrices[s]}, lies in no matrix")
