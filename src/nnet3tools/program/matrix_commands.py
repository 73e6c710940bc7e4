"""Commands that move and add matrices and rows of matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import numpy as np

from nnet3tools.nnet.indexes import BoolArray, IntArray
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.command import Command, command
from nnet3tools.program.component_facts import ComponentTable
from nnet3tools.program.computation import Computation
from nnet3tools.program.groups import CommandGroup
from nnet3tools.program.operands import (
    Accesses,
    AccessMap,
    AccessType,
    Alpha,
    Indexes,
    IndexesRanges,
    Names,
    Submatrix,
    Tables,
)

READ, WRITE, READ_WRITE = AccessType.READ, AccessType.WRITE, AccessType.READ_WRITE


class MoveCommand(Command):
    """Base class of commands that copy or add elements, multiplied by `alpha`."""

    __slots__ = ()
    ADDS: ClassVar[bool] = False
    alpha: float

    def num_moved(self, computation: Computation) -> int:
        """The number of elements that are copied or added."""
        raise NotImplementedError

    def flops(self, computation: Computation, nnet: Nnet) -> int:
        return (self.ADDS + (self.alpha != 1.0)) * self.num_moved(computation)


class _MatrixCommand(MoveCommand):
    """Base class of commands that copy or add a whole submatrix."""

    __slots__ = ()
    dest: int
    src: int

    def problem(self, tables: Tables) -> str:
        operands = self.dest, self.src
        return tables.size_problem(*operands) or tables.overlap_problem(*operands)

    def num_moved(self, computation: Computation) -> int:
        return computation.submatrices[self.dest].size

    def text(self, names: Names) -> str:
        scale = "" if self.alpha == 1.0 else f"{self.alpha:g} * "
        sign = "+=" if self.ADDS else "="
        return f"{names.submatrix(self.dest)} {sign} {scale}{names.submatrix(self.src)}"


@command(7)
class MatrixCopy(_MatrixCommand):
    """The command dest = alpha * src; if dest is src, it scales in place."""

    dest: Submatrix
    src: Submatrix
    alpha: Alpha = 1.0

    ACCESS: ClassVar[AccessMap] = {"dest": WRITE, "src": READ}

    def problem(self, tables: Tables) -> str:
        if tables.same(self.dest, self.src):
            return "" if self.alpha != 1.0 else "copy of a submatrix to itself"
        return _MatrixCommand.problem(self, tables)


@command(8)
class MatrixAdd(_MatrixCommand):
    """The command dest += alpha * src."""

    dest: Submatrix
    src: Submatrix
    alpha: Alpha = 1.0

    ACCESS: ClassVar[AccessMap] = {"dest": READ_WRITE, "src": READ}
    ADDS: ClassVar[bool] = True


class RowsCommand(MoveCommand):
    """Base class of commands with a list that has an entry for each row of one submatrix.

    OWN names the field of that submatrix. LIST names both the field with the list's number and the
    program's attribute that holds all such lists.
    """

    __slots__ = ()
    OWN: ClassVar[str] = "dest"
    LIST: ClassVar[str]

    @property
    def own(self) -> int:
        """The submatrix whose rows the command's list describes."""
        return int(getattr(self, self.OWN))

    def entries(self, computation: Computation) -> IntArray:
        """The list, with one entry (a number or a pair) for each row; -1 stands for none."""
        return getattr(computation, self.LIST)[getattr(self, self.LIST)]

    def with_entries(self, computation: Computation, own: int, entries: IntArray) -> Self:
        """A copy for submatrix `own`; its list `entries`, one per row, is added to the program."""
        number = getattr(computation, f"new_{self.LIST}")(entries)
        return self.replace(**{self.OWN: own, self.LIST: number})

    def num_moved(self, computation: Computation) -> int:
        used = has_row(self.entries(computation))
        return int(np.count_nonzero(used)) * computation.submatrices[self.own].num_cols


def has_row(entries: IntArray) -> BoolArray:
    """(rows,) whether each entry of a RowsCommand's list names a row."""
    return (entries if entries.ndim == 1 else entries[:, 0]) >= 0


class _RowsFromSource(RowsCommand):
    """Base class of commands that copy or add rows of one submatrix, listed in `indexes`."""

    __slots__ = ()
    LIST: ClassVar[str] = "indexes"
    dest: int
    src: int

    def problem(self, tables: Tables) -> str:
        rows = self.entries(tables.computation)
        if len(rows) != tables.rows(self.dest):
            return f"{len(rows)} row indexes for {tables.rows(self.dest)} rows"
        if tables.cols(self.dest) != tables.cols(self.src):
            return f"{tables.cols(self.src)} columns do not fit {tables.cols(self.dest)}"
        if rows.min() < -1 or rows.max() >= tables.rows(self.src):
            return f"row index outside -1..{tables.rows(self.src) - 1}"
        return tables.overlap_problem(self.dest, self.src)


@command(9)
class CopyRows(_RowsFromSource):
    """The command dest[i] = alpha * src[indexes[i]], or zeros where the index is -1."""

    dest: Submatrix
    src: Submatrix
    indexes: Indexes
    alpha: Alpha = 1.0

    TEXT: ClassVar[str] = "{dest}.CopyRows({alpha}, {src}{indexes})"

    @classmethod
    def accesses_of(
        cls, group: CommandGroup, computation: Computation, components: ComponentTable
    ) -> Iterator[Accesses]:
        # Kaldi counts -1 as "keeps what was there" although its kernel sets zero; the analysis
        # must be no bolder than Kaldi's, or programs that Kaldi's passes accept would differ.
        lists = (computation.indexes[i] for i in group.column("indexes").tolist())
        gaps = np.array([len(rows) > 0 and int(rows.min()) < 0 for rows in lists], np.bool_)
        yield Accesses(group.positions, group.column("dest"), np.where(gaps, READ_WRITE, WRITE))
        yield Accesses(group.positions, group.column("src"), READ)


@command(10)
class AddRows(_RowsFromSource):
    """The command dest[i] += alpha * src[indexes[i]], except where the index is -1."""

    dest: Submatrix
    src: Submatrix
    indexes: Indexes
    alpha: Alpha = 1.0

    TEXT: ClassVar[str] = "{dest}.AddRows({alpha}, {src}{indexes})"
    ACCESS: ClassVar[AccessMap] = {"dest": READ_WRITE, "src": READ}
    ADDS: ClassVar[bool] = True


@command(15)
class AddRowRanges(RowsCommand):
    """The command dest[i] += alpha * (sum of rows b to e - 1 of src), (b, e): i-th range."""

    dest: Submatrix
    src: Submatrix
    indexes_ranges: IndexesRanges
    alpha: Alpha = 1.0

    TEXT: ClassVar[str] = "{dest}.AddRowRanges({alpha}, {src}, {indexes_ranges})"
    ACCESS: ClassVar[AccessMap] = {"dest": READ_WRITE, "src": READ}
    ADDS: ClassVar[bool] = True
    LIST: ClassVar[str] = "indexes_ranges"

    def problem(self, tables: Tables) -> str:
        ranges = self.entries(tables.computation)
        if len(ranges) != tables.rows(self.dest):
            return f"{len(ranges)} ranges for {tables.rows(self.dest)} rows"
        if tables.cols(self.dest) != tables.cols(self.src):
            return f"{tables.cols(self.src)} columns do not fit {tables.cols(self.dest)}"
        begin, end = ranges[:, 0], ranges[:, 1]
        none = (begin == -1) & (end == -1)
        proper = (begin >= 0) & (end > begin) & (end <= tables.rows(self.src))
        if not (none | proper).all():
            bad = ranges[np.flatnonzero(~(none | proper))[0]]
            return f"range {bad[0]}:{bad[1]} is not within {tables.rows(self.src)} rows"
        return tables.overlap_problem(self.dest, self.src)

    def num_moved(self, computation: Computation) -> int:
        ranges = self.entries(computation)
        summed = int((ranges[:, 1] - ranges[:, 0]).sum())
        return summed * computation.submatrices[self.dest].num_cols
