"""Commands that move and add matrices and rows of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from nnet3tools.program.command import (
    Access,
    AccessMap,
    AccessType,
    Alpha,
    Command,
    Indexes,
    IndexesMulti,
    IndexesRanges,
    Names,
    Submatrix,
    command,
    submatrices_in,
)

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet
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


# -- matrices


@command(7)
class MatrixCopy(Command):
    """dest = alpha * src; dest == src scales it."""

    dest: Submatrix
    src: Submatrix
    alpha: Alpha = 1.0

    ACCESS: ClassVar[AccessMap] = {"dest": WRITE, "src": READ}

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

    def text(self, names: Names) -> str:
        scale = "" if self.alpha == 1.0 else f"{self.alpha:g} * "
        return f"{names.submatrix(self.dest)} += {scale}{names.submatrix(self.src)}"


# -- rows


@command(9)
class CopyRows(Command):
    """dest[i] = alpha * src[indexes[i]]; a row of zeros where the index is -1."""

    dest: Submatrix
    src: Submatrix
    indexes: Indexes
    alpha: Alpha = 1.0

    def accesses(self, computation: Computation, nnet: Nnet) -> list[Access]:
        # Kaldi counts -1 as "keeps what was there" although its kernel sets zero; the analysis
        # must be no bolder than Kaldi's, or programs that Kaldi's passes accept would differ.
        gaps = bool((computation.indexes[self.indexes] < 0).any())
        return [Access(self.dest, READ_WRITE if gaps else WRITE), Access(self.src, READ)]

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

    def text(self, names: Names) -> str:
        return _rows_text(self, "AddRows", names)


def _rows_text(self: CopyRows | AddRows, verb: str, names: Names) -> str:
    return (
        f"{names.submatrix(self.dest)}.{verb}({self.alpha:g}, "
        f"{names.submatrix(self.src)}{names.indexes(self.indexes)})"
    )


class _MultiCommand(Command):
    """Rows of one submatrix against rows of several, listed as (submatrix, row) pairs."""

    __slots__ = ()
    OWN: ClassVar[str]
    """Field of the one submatrix."""
    LISTED: ClassVar[AccessType]
    """How the several are touched."""
    indexes_multi: int
    alpha: float

    def accesses(self, computation: Computation, nnet: Nnet) -> list[Access]:
        listed = submatrices_in(computation.indexes_multi[self.indexes_multi])
        own = Access(getattr(self, self.OWN), self.ACCESS[self.OWN])
        return [own, *(Access(s, self.LISTED) for s in listed)]

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


@command(13)
class AddRowsMulti(_MultiCommand):
    """dest[i] += alpha * the i-th listed row."""

    dest: Submatrix
    indexes_multi: IndexesMulti
    alpha: Alpha = 1.0

    OWN: ClassVar[str] = "dest"
    ACCESS: ClassVar[AccessMap] = {"dest": READ_WRITE}
    LISTED: ClassVar[AccessType] = READ


@command(14)
class AddToRowsMulti(_MultiCommand):
    """The i-th listed row += alpha * src[i]. No row may be listed twice."""

    src: Submatrix
    indexes_multi: IndexesMulti
    alpha: Alpha = 1.0

    OWN: ClassVar[str] = "src"
    ACCESS: ClassVar[AccessMap] = {"src": READ}
    LISTED: ClassVar[AccessType] = READ_WRITE


@command(15)
class AddRowRanges(Command):
    """dest[i] += alpha * the sum of rows begin..end-1 of src, for the i-th pair (begin, end)."""

    dest: Submatrix
    src: Submatrix
    indexes_ranges: IndexesRanges
    alpha: Alpha = 1.0

    ACCESS: ClassVar[AccessMap] = {"dest": READ_WRITE, "src": READ}

    def text(self, names: Names) -> str:
        return (
            f"{names.submatrix(self.dest)}.AddRowRanges({self.alpha:g}, "
            f"{names.submatrix(self.src)}, {names.indexes_ranges(self.indexes_ranges)})"
        )
