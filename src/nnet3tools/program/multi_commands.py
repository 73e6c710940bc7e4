"""Commands that move and add rows between one submatrix and several, listed row by row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from nnet3tools.graph.computation_graph import all_true
from nnet3tools.program.command import command
from nnet3tools.program.component_facts import ComponentTable
from nnet3tools.program.computation import Computation
from nnet3tools.program.groups import CommandGroup
from nnet3tools.program.matrix_commands import RowsCommand
from nnet3tools.program.operands import (
    Accesses,
    AccessMap,
    AccessType,
    Alpha,
    IndexesMulti,
    Submatrix,
    Tables,
    listed_submatrices,
)

READ, WRITE, READ_WRITE = AccessType.READ, AccessType.WRITE, AccessType.READ_WRITE


class MultiCommand(RowsCommand):
    """A command between rows of one submatrix and rows listed as (submatrix, row) pairs.

    LISTED is the access to the submatrices in the list, which has the number `indexes_multi`.
    """

    __slots__ = ()
    LIST: ClassVar[str] = "indexes_multi"
    indexes_multi: int
    LISTED: ClassVar[AccessType]

    @classmethod
    def accesses_of(
        cls, group: CommandGroup, computation: Computation, components: ComponentTable
    ) -> Iterator[Accesses]:
        yield from super().accesses_of(group, computation, components)
        lists = [computation.indexes_multi[i] for i in group.column("indexes_multi").tolist()]
        which, submatrices = listed_submatrices(lists)
        yield Accesses(group.positions[which], submatrices, cls.LISTED)

    def problem(self, tables: Tables) -> str:
        pairs, own = self.entries(tables.computation), self.own
        if len(pairs) != tables.rows(own):
            return f"{len(pairs)} pairs for {tables.rows(own)} rows"
        if pairs.min(initial=0) < -1 or not all_true((pairs[:, 0] < 0) == (pairs[:, 1] < 0)):
            return "a pair that is neither (-1,-1) nor a row of a submatrix"
        listed, rows = pairs[pairs[:, 0] >= 0].T
        if len(wrong := listed[(listed == 0) | (listed >= len(tables.submatrix_table))]):
            return f"there is no submatrix {wrong.min()}"
        infos = tables.submatrix_table[listed]
        if len(wrong := infos[infos[:, 4] != tables.cols(own), 4]):
            return f"{wrong[0]} columns do not fit {tables.cols(own)}"
        if len(wrong := listed[rows >= infos[:, 2]]):
            return f"row outside submatrix {wrong.min()}"
        in_own_matrix = infos[:, 0] == tables.submatrix_table[own, 0]
        for submatrix in set(listed[in_own_matrix].tolist()):
            if tables.overlap(submatrix, own):
                return "source and destination overlap"
        return ""


@command(11)
class CopyRowsMulti(MultiCommand):
    """The command dest[i] = alpha * the row of pair i (submatrix, row) of a list; zeros for -1."""

    dest: Submatrix
    indexes_multi: IndexesMulti
    alpha: Alpha = 1.0

    TEXT: ClassVar[str] = "{dest}.CopyRowsMulti({alpha}, {indexes_multi})"
    ACCESS: ClassVar[AccessMap] = {"dest": WRITE}
    LISTED: ClassVar[AccessType] = READ


@command(12)
class CopyToRowsMulti(MultiCommand):
    """The command that copies src[i] to the row of pair i (submatrix, row) of a list.

    alpha must be 1, and no row may be listed twice.
    """

    src: Submatrix
    indexes_multi: IndexesMulti
    alpha: Alpha = 1.0

    TEXT: ClassVar[str] = "{src}.CopyToRowsMulti({alpha}, {indexes_multi})"
    OWN: ClassVar[str] = "src"
    ACCESS: ClassVar[AccessMap] = {"src": READ}
    LISTED: ClassVar[AccessType] = READ_WRITE

    def problem(self, tables: Tables) -> str:
        if self.alpha != 1.0:
            return f"alpha is {self.alpha:g}, must be 1"
        return MultiCommand.problem(self, tables) or _twice_problem(tables, self)


@command(13)
class AddRowsMulti(MultiCommand):
    """The command dest[i] += alpha * the row of pair i (submatrix, row) of a list; -1: no row."""

    dest: Submatrix
    indexes_multi: IndexesMulti
    alpha: Alpha = 1.0

    TEXT: ClassVar[str] = "{dest}.AddRowsMulti({alpha}, {indexes_multi})"
    ACCESS: ClassVar[AccessMap] = {"dest": READ_WRITE}
    LISTED: ClassVar[AccessType] = READ
    ADDS: ClassVar[bool] = True


@command(14)
class AddToRowsMulti(MultiCommand):
    """The command that adds alpha * src[i] to the row of pair i (submatrix, row) of a list.

    The pair (-1, -1) stands for no row. No row may be listed twice.
    """

    src: Submatrix
    indexes_multi: IndexesMulti
    alpha: Alpha = 1.0

    TEXT: ClassVar[str] = "{src}.AddToRowsMulti({alpha}, {indexes_multi})"
    OWN: ClassVar[str] = "src"
    ACCESS: ClassVar[AccessMap] = {"src": READ}
    LISTED: ClassVar[AccessType] = READ_WRITE
    ADDS: ClassVar[bool] = True

    def problem(self, tables: Tables) -> str:
        return MultiCommand.problem(self, tables) or _twice_problem(tables, self)


def _twice_problem(tables: Tables, command: MultiCommand) -> str:
    """A message if the command's list has a row twice (a GPU would race), else ""."""
    pairs = command.entries(tables.computation)
    pairs = pairs[pairs[:, 0] >= 0]
    if len(pairs) < 2:
        return ""
    sub = tables.submatrix_table[pairs[:, 0]]
    row, col, width = sub[:, 1] + pairs[:, 1], sub[:, 3], sub[:, 4]
    order = np.lexsort((col, row, sub[:, 0]))
    matrix, row, col, width = sub[order, 0], row[order], col[order], width[order]
    same_row = (matrix[1:] == matrix[:-1]) & (row[1:] == row[:-1])
    twice = np.flatnonzero(same_row & (col[1:] < col[:-1] + width[:-1]))
    return f"row {row[twice[0]]} of m{matrix[twice[0]]} is written twice" if len(twice) else ""
