"""Commands that move and add matrices and rows of matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from nnet3tools.graph.tables import all_true
from nnet3tools.program.command import Command, command
from nnet3tools.program.groups import CommandGroup
from nnet3tools.program.operands import (
    Accesses,
    AccessMap,
    AccessType,
    Alpha,
    Indexes,
    IndexesMulti,
    IndexesRanges,
    Names,
    Submatrix,
    Tables,
    listed_submatrices,
    size_problem,
)

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet
    from nnet3tools.program.component_facts import ComponentTable
    from nnet3tools.program.computation import Computation

__all__ = [
    "AddRowRanges",
    "AddRows",
    "AddRowsMulti",
    "AddToRowsMulti",
    "CopyRows",
    "CopyRowsMulti",
    "CopyToRowsMulti",
    "MatrixAdd",
    "MatrixCopy",
]

READ, WRITE, READ_WRITE = AccessType.READ, AccessType.WRITE, AccessType.READ_WRITE


class _Scaled(Protocol):
    @property
    def alpha(self) -> float: ...


def _scaled(self: _Scaled) -> int:
    """Operations an element for the scale."""
    return int(self.alpha != 1.0)


class _FromSource(Protocol):
    @property
    def dest(self) -> int: ...

    @property
    def src(self) -> int: ...


@command(7)
class MatrixCopy(Command):
    """dest = alpha * src; dest == src scales it."""

    dest: Submatrix
    src: Submatrix
    alpha: Alpha = 1.0

    ACCESS: ClassVar[AccessMap] = {"dest": WRITE, "src": READ}

    def problem(self, tables: Tables) -> str:
        if tables.same(self.dest, self.src):
            return "" if self.alpha != 1.0 else "copy of a submatrix to itself"
        return size_problem(tables, self.dest, self.src) or _overlap_problem(tables, self)

    def flops(self, computation: Computation, nnet: Nnet) -> int:
        return _scaled(self) * computation.submatrices[self.dest].size

    def text(self, names: Names) -> str:
        scale = "" if self.alpha == 1.0 else f"{self.alpha:g} * "
        return f"{names.submatrix(self.dest)} = {scale}{names.submatrix(self.src)}"


@command(8)
class MatrixAdd(Command):
    """dest += alpha * src."""

    dest: Submatrix
    src: Submatrix
    alpha: Alpha = 1.0

    ACCESS: ClassVar[AccessMap] = {"dest": READ_WRITE, "src": READ}

    def problem(self, tables: Tables) -> str:
        return size_problem(tables, self.dest, self.src) or _overlap_problem(tables, self)

    def flops(self, computation: Computation, nnet: Nnet) -> int:
        return (1 + _scaled(self)) * computation.submatrices[self.dest].size

    def text(self, names: Names) -> str:
        scale = "" if self.alpha == 1.0 else f"{self.alpha:g} * "
        return f"{names.submatrix(self.dest)} += {scale}{names.submatrix(self.src)}"


@command(9)
class CopyRows(Command):
    """dest[i] = alpha * src[indexes[i]]; a row of zeros where the index is -1."""

    dest: Submatrix
    src: Submatrix
    indexes: Indexes
    alpha: Alpha = 1.0

    @classmethod
    def accesses_of(
        cls, group: CommandGroup, computation: Computation, components: ComponentTable
    ) -> Iterator[Accesses]:
        # Kaldi counts -1 as "keeps what was there" although its kernel sets zero; the analysis
        # must be no bolder than Kaldi's, or programs that Kaldi's passes accept would differ.
        lists = (computation.indexes[i] for i in group.column("indexes").tolist())
        gaps = np.array([len(rows) > 0 and int(rows.min()) < 0 for rows in lists], np.bool_)
        everyone = np.arange(len(group))
        yield Accesses(everyone, group.column("dest"), np.where(gaps, READ_WRITE, WRITE))
        yield Accesses(everyone, group.column("src"), READ)

    def problem(self, tables: Tables) -> str:
        return _rows_problem(tables, self)

    def flops(self, computation: Computation, nnet: Nnet) -> int:
        return _scaled(self) * _elements_moved(self, computation)

    def text(self, names: Names) -> str:
        return _rows_text(self, "CopyRows", names)


@command(10)
class AddRows(Command):
    """dest[i] += alpha * src[indexes[i]]; nothing where the index is -1."""

    dest: Submatrix
    src: Submatrix
    indexes: Indexes
    alpha: Alpha = 1.0

    ACCESS: ClassVar[AccessMap] = {"dest": READ_WRITE, "src": READ}

    def problem(self, tables: Tables) -> str:
        return _rows_problem(tables, self)

    def flops(self, computation: Computation, nnet: Nnet) -> int:
        return (1 + _scaled(self)) * _elements_moved(self, computation)

    def text(self, names: Names) -> str:
        return _rows_text(self, "AddRows", names)


def _rows_text(self: CopyRows | AddRows, verb: str, names: Names) -> str:
    return (
        f"{names.submatrix(self.dest)}.{verb}({self.alpha:g}, "
        f"{names.submatrix(self.src)}{names.indexes(self.indexes)})"
    )


def _elements_moved(self: CopyRows | AddRows, computation: Computation) -> int:
    moved = int((computation.indexes[self.indexes] >= 0).sum())
    return moved * computation.submatrices[self.dest].num_cols


def _overlap_problem(tables: Tables, self: _FromSource) -> str:
    return "source and destination overlap" if tables.overlap(self.dest, self.src) else ""


def _rows_problem(tables: Tables, self: CopyRows | AddRows) -> str:
    rows = tables.computation.indexes[self.indexes]
    if len(rows) != tables.rows(self.dest):
        return f"{len(rows)} row indexes for {tables.rows(self.dest)} rows"
    if tables.cols(self.dest) != tables.cols(self.src):
        return f"{tables.cols(self.src)} columns do not fit {tables.cols(self.dest)}"
    if rows.min() < -1 or rows.max() >= tables.rows(self.src):
        return f"row index outside -1..{tables.rows(self.src) - 1}"
    return _overlap_problem(tables, self)


class _MultiCommand(Command):
    """Rows of one submatrix against rows of several, listed as (submatrix, row) pairs."""

    __slots__ = ()
    OWN: ClassVar[str]
    """Field of the one submatrix."""
    LISTED: ClassVar[AccessType]
    """How the several are touched."""
    ADDS: ClassVar[bool] = False
    indexes_multi: int
    alpha: float

    @classmethod
    def accesses_of(
        cls, group: CommandGroup, computation: Computation, components: ComponentTable
    ) -> Iterator[Accesses]:
        yield from super().accesses_of(group, computation, components)
        lists = [computation.indexes_multi[i] for i in group.column("indexes_multi").tolist()]
        which, submatrices = listed_submatrices(lists)
        yield Accesses(which, submatrices, cls.LISTED)

    def problem(self, tables: Tables) -> str:
        pairs = tables.computation.indexes_multi[self.indexes_multi]
        own = getattr(self, self.OWN)
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

    def flops(self, computation: Computation, nnet: Nnet) -> int:
        moved = int((computation.indexes_multi[self.indexes_multi][:, 0] >= 0).sum())
        cols = computation.submatrices[getattr(self, self.OWN)].num_cols
        return (self.ADDS + _scaled(self)) * moved * cols

    def text(self, names: Names) -> str:
        own = names.submatrix(getattr(self, self.OWN))
        verb = self.NAME.removeprefix("k")
        return f"{own}.{verb}({self.alpha:g}, {names.indexes_multi(self.indexes_multi)})"


@command(11)
class CopyRowsMulti(_MultiCommand):
    """dest[i] = alpha * the i-th listed row; a row of zeros where none is listed."""

    dest: Submatrix
    indexes_multi: IndexesMulti
    alpha: Alpha = 1.0

    OWN: ClassVar[str] = "dest"
    ACCESS: ClassVar[AccessMap] = {"dest": WRITE}
    LISTED: ClassVar[AccessType] = READ


@command(12)
class CopyToRowsMulti(_MultiCommand):
    """The i-th listed row = src[i]; alpha must be 1. No row may be listed twice."""

    src: Submatrix
    indexes_multi: IndexesMulti
    alpha: Alpha = 1.0

    OWN: ClassVar[str] = "src"
    ACCESS: ClassVar[AccessMap] = {"src": READ}
    LISTED: ClassVar[AccessType] = READ_WRITE

    def problem(self, tables: Tables) -> str:
        if self.alpha != 1.0:
            return f"alpha is {self.alpha:g}, must be 1"
        return _MultiCommand.problem(self, tables) or _twice_problem(tables, self.indexes_multi)


@command(13)
class AddRowsMulti(_MultiCommand):
    """dest[i] += alpha * the i-th listed row."""

    dest: Submatrix
    indexes_multi: IndexesMulti
    alpha: Alpha = 1.0

    OWN: ClassVar[str] = "dest"
    ACCESS: ClassVar[AccessMap] = {"dest": READ_WRITE}
    LISTED: ClassVar[AccessType] = READ
    ADDS: ClassVar[bool] = True


@command(14)
class AddToRowsMulti(_MultiCommand):
    """The i-th listed row += alpha * src[i]. No row may be listed twice."""

    src: Submatrix
    indexes_multi: IndexesMulti
    alpha: Alpha = 1.0

    OWN: ClassVar[str] = "src"
    ACCESS: ClassVar[AccessMap] = {"src": READ}
    LISTED: ClassVar[AccessType] = READ_WRITE
    ADDS: ClassVar[bool] = True

    def problem(self, tables: Tables) -> str:
        return _MultiCommand.problem(self, tables) or _twice_problem(tables, self.indexes_multi)


def _twice_problem(tables: Tables, indexes_multi: int) -> str:
    """A row that is written twice would race on a GPU; also one reached by two submatrices."""
    pairs = tables.computation.indexes_multi[indexes_multi]
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


@command(15)
class AddRowRanges(Command):
    """dest[i] += alpha * the sum of rows begin..end-1 of src, for the i-th pair (begin, end)."""

    dest: Submatrix
    src: Submatrix
    indexes_ranges: IndexesRanges
    alpha: Alpha = 1.0

    ACCESS: ClassVar[AccessMap] = {"dest": READ_WRITE, "src": READ}

    def problem(self, tables: Tables) -> str:
        ranges = tables.computation.indexes_ranges[self.indexes_ranges]
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
        return _overlap_problem(tables, self)

    def flops(self, computation: Computation, nnet: Nnet) -> int:
        ranges = computation.indexes_ranges[self.indexes_ranges]
        summed = int((ranges[:, 1] - ranges[:, 0]).sum())
        return (1 + _scaled(self)) * summed * computation.submatrices[self.dest].num_cols

    def text(self, names: Names) -> str:
        return (
            f"{names.submatrix(self.dest)}.AddRowRanges({self.alpha:g}, "
            f"{names.submatrix(self.src)}, {names.indexes_ranges(self.indexes_ranges)})"
        )
