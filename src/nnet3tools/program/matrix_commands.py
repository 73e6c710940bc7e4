"""Commands that move and add matrices and rows of matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from nnet3tools.program.command import Command, command
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
    scale_flops,
    size_problem,
)

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet
    from nnet3tools.program.component_facts import ComponentTable
    from nnet3tools.program.computation import Computation

READ, WRITE, READ_WRITE = AccessType.READ, AccessType.WRITE, AccessType.READ_WRITE


class _FromSource(Protocol):
    @property
    def dest(self) -> int: ...

    @property
    def src(self) -> int: ...


@command(7)
class MatrixCopy(Command):
    """The command dest = alpha * src; if dest is src, it scales in place."""

    dest: Submatrix
    src: Submatrix
    alpha: Alpha = 1.0

    ACCESS: ClassVar[AccessMap] = {"dest": WRITE, "src": READ}

    def problem(self, tables: Tables) -> str:
        if tables.same(self.dest, self.src):
            return "" if self.alpha != 1.0 else "copy of a submatrix to itself"
        return size_problem(tables, self.dest, self.src) or _overlap_problem(tables, self)

    def flops(self, computation: Computation, nnet: Nnet) -> int:
        return scale_flops(self.alpha) * computation.submatrices[self.dest].size

    def text(self, names: Names) -> str:
        scale = "" if self.alpha == 1.0 else f"{self.alpha:g} * "
        return f"{names.submatrix(self.dest)} = {scale}{names.submatrix(self.src)}"


@command(8)
class MatrixAdd(Command):
    """The command dest += alpha * src."""

    dest: Submatrix
    src: Submatrix
    alpha: Alpha = 1.0

    ACCESS: ClassVar[AccessMap] = {"dest": READ_WRITE, "src": READ}

    def problem(self, tables: Tables) -> str:
        return size_problem(tables, self.dest, self.src) or _overlap_problem(tables, self)

    def flops(self, computation: Computation, nnet: Nnet) -> int:
        return (1 + scale_flops(self.alpha)) * computation.submatrices[self.dest].size

    def text(self, names: Names) -> str:
        scale = "" if self.alpha == 1.0 else f"{self.alpha:g} * "
        return f"{names.submatrix(self.dest)} += {scale}{names.submatrix(self.src)}"


@command(9)
class CopyRows(Command):
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
        everyone = np.arange(len(group))
        yield Accesses(everyone, group.column("dest"), np.where(gaps, READ_WRITE, WRITE))
        yield Accesses(everyone, group.column("src"), READ)

    def problem(self, tables: Tables) -> str:
        return _rows_problem(tables, self)

    def flops(self, computation: Computation, nnet: Nnet) -> int:
        return scale_flops(self.alpha) * _elements_moved(self, computation)


@command(10)
class AddRows(Command):
    """The command dest[i] += alpha * src[indexes[i]], except where the index is -1."""

    dest: Submatrix
    src: Submatrix
    indexes: Indexes
    alpha: Alpha = 1.0

    TEXT: ClassVar[str] = "{dest}.AddRows({alpha}, {src}{indexes})"
    ACCESS: ClassVar[AccessMap] = {"dest": READ_WRITE, "src": READ}

    def problem(self, tables: Tables) -> str:
        return _rows_problem(tables, self)

    def flops(self, computation: Computation, nnet: Nnet) -> int:
        return (1 + scale_flops(self.alpha)) * _elements_moved(self, computation)


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


@command(15)
class AddRowRanges(Command):
    """The command dest[i] += alpha * (sum of rows begin..end-1 of src), for the i-th range."""

    dest: Submatrix
    src: Submatrix
    indexes_ranges: IndexesRanges
    alpha: Alpha = 1.0

    TEXT: ClassVar[str] = "{dest}.AddRowRanges({alpha}, {src}, {indexes_ranges})"
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
        return (1 + scale_flops(self.alpha)) * summed * computation.submatrices[self.dest].num_cols
