"""The Computation: a compiled program of matrix commands over a table of matrices and submatrices.

Kaldi's struct NnetComputation (nnet-computation.h) with arrays for the row indexes. Entry 0 of
`matrices`, `submatrices` and `component_precomputed_indexes` is reserved for "none".
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterable
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import ProgramError
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.nnet.components.base import PrecomputedIndexes
from nnet3tools.nnet.indexes import IndexArray, IntArray
from nnet3tools.program.groups import CommandGroup, group_commands

if TYPE_CHECKING:
    from nnet3tools.program.command import Command


class StrideType(enum.IntEnum):
    """Whether the rows of a matrix may be padded in memory (Kaldi's MatrixStrideType)."""

    DEFAULT = 0
    EQUAL_NUM_COLS = 1


class MatrixInfo(NamedTuple):
    """The size of one matrix of a program, and whether its rows may be padded in memory."""

    num_rows: int
    num_cols: int
    stride_type: StrideType = StrideType.DEFAULT


class SubMatrixInfo(NamedTuple):
    """A block of rows and columns of a matrix. Operands of commands are such blocks."""

    matrix_index: int
    row_offset: int
    num_rows: int
    col_offset: int
    num_cols: int

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.num_rows * self.num_cols


as_submatrix: Callable[[Iterable[int]], SubMatrixInfo] = partial(tuple.__new__, SubMatrixInfo)
"""SubMatrixInfo of a sequence of five numbers, in half of the time of SubMatrixInfo._make."""
_as_matrix = partial(tuple.__new__, MatrixInfo)


class DebugInfo(Protocol):
    """The cindex of each row of a matrix: stored (MatrixDebugInfo), or computed at each access."""

    @property
    def is_deriv(self) -> bool:
        """Whether the matrix is a derivative, not a value."""

    @property
    def nodes(self) -> IntArray:
        """(rows,) the number of the network node of each row."""

    @property
    def indexes(self) -> IndexArray:
        """(rows, 3) the Index (n, t, x) of each row."""


class MatrixDebugInfo(NamedTuple):
    """The cindex (node and index) of each row of one matrix."""

    is_deriv: bool
    """True for a derivative, False for a value."""
    nodes: IntArray
    """Network node of each row, (rows,)."""
    indexes: IndexArray
    """Index of each row, (rows, 3)."""


class PrecomputedInfo(NamedTuple):
    """What a component that is not simple precomputed from the Indexes of one of its steps.

    `input_indexes` and `output_indexes`, (N, 3), are kept only where shortcut compilation will need
    them to expand the program; they are empty otherwise.
    """

    data: PrecomputedIndexes | None
    input_indexes: IndexArray
    output_indexes: IndexArray


def _no_indexes() -> IndexArray:
    return np.empty((0, 3), np.int32)


@dataclass(slots=True)
class Computation:
    """A program. The arrays of row indexes are never changed in place, only replaced.

    `matrix_debug_info` is empty or has an entry for each matrix. The lists of rows are,
    -1 for none: `indexes` (rows,) of CopyRows and AddRows, `indexes_multi` (rows, 2), (submatrix,
    row), of Multi commands, `indexes_ranges` (rows, 2), (first row, last row + 1), of AddRowRanges.
    """

    matrices: list[MatrixInfo] = field(default_factory=lambda: [MatrixInfo(0, 0)])
    submatrices: list[SubMatrixInfo] = field(default_factory=lambda: [SubMatrixInfo(0, 0, 0, 0, 0)])
    matrix_debug_info: list[DebugInfo] = field(default_factory=list)
    component_precomputed_indexes: list[PrecomputedInfo] = field(
        default_factory=lambda: [PrecomputedInfo(None, _no_indexes(), _no_indexes())]
    )
    indexes: list[IntArray] = field(default_factory=list)
    indexes_multi: list[IntArray] = field(default_factory=list)
    indexes_ranges: list[IntArray] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    need_model_derivative: bool = False
    _table: tuple[list[SubMatrixInfo], NDArray[np.int64]] | None = field(
        default=None, repr=False, compare=False
    )
    """Submatrices and their table, which passes often want: making it is a tenth of their time."""
    _groups: tuple[list[Command], dict[type[Command], CommandGroup]] | None = field(
        default=None, repr=False, compare=False
    )
    """Some commands and their groups; copies of the program do not have it."""

    def copy(self) -> Computation:
        """A copy of the program whose tables and commands can be changed separately."""
        return Computation(
            list(self.matrices),
            list(self.submatrices),
            list(self.matrix_debug_info),
            list(self.component_precomputed_indexes),
            list(self.indexes),
            list(self.indexes_multi),
            list(self.indexes_ranges),
            list(self.commands),
            self.need_model_derivative,
            self._table,
        )

    # -- growing the tables

    def new_matrix(
        self, num_rows: int, num_cols: int, stride_type: StrideType = StrideType.DEFAULT
    ) -> int:
        """Declare a matrix; returns the number of the submatrix that is the whole of it.

        If the program has debug information, the caller appends the entry for the new matrix.
        """
        if num_rows <= 0 or num_cols <= 0:
            raise ProgramError(f"matrix of size {num_rows} x {num_cols} declared")
        self.matrices.append(_as_matrix((num_rows, num_cols, stride_type)))
        self.submatrices.append(as_submatrix((len(self.matrices) - 1, 0, num_rows, 0, num_cols)))
        return len(self.submatrices) - 1

    def new_submatrix(
        self,
        base: int,
        row_offset: int = 0,
        num_rows: int = -1,
        col_offset: int = 0,
        num_cols: int = -1,
    ) -> int:
        """Declare a block at offsets in submatrix `base`; returns its number. Size -1: the rest."""
        matrix, first_row, most_rows, first_col, most_cols = self.submatrices[base]
        if num_rows == -1:
            num_rows = most_rows - row_offset
        if num_cols == -1:
            num_cols = most_cols - col_offset
        if not (
            base > 0
            and row_offset >= 0
            and col_offset >= 0
            and 0 < num_rows <= most_rows - row_offset
            and 0 < num_cols <= most_cols - col_offset
        ):
            raise ProgramError(
                f"rows {row_offset}+{num_rows}, columns {col_offset}+{num_cols} do not fit in "
                f"submatrix {base} of size {most_rows} x {most_cols}"
            )
        self.submatrices.append(
            as_submatrix(
                (matrix, first_row + row_offset, num_rows, first_col + col_offset, num_cols)
            )
        )
        return len(self.submatrices) - 1

    def new_indexes(self, rows: IntArray) -> int:
        """Add row indexes for CopyRows or AddRows; returns the list's number."""
        self.indexes.append(np.asarray(rows, np.int32))
        return len(self.indexes) - 1

    def new_indexes_multi(self, pairs: IntArray) -> int:
        """Add (submatrix, row) pairs for a Multi command; returns the list's number."""
        self.indexes_multi.append(np.asarray(pairs, np.int32).reshape(-1, 2))
        return len(self.indexes_multi) - 1

    def new_indexes_ranges(self, ranges: IntArray) -> int:
        """Add (begin, end) row ranges for AddRowRanges; returns the list's number."""
        self.indexes_ranges.append(np.asarray(ranges, np.int32).reshape(-1, 2))
        return len(self.indexes_ranges) - 1

    # -- looking at the tables

    def submatrix_table(self) -> NDArray[np.int64]:
        """(submatrices, 5): the fields of each submatrix, in the order of SubMatrixInfo."""
        # Comparing lists of the same objects takes microseconds.
        if self._table is None or self._table[0] != self.submatrices:
            numbers = itertools.chain.from_iterable(self.submatrices)
            table = np.fromiter(numbers, np.int64, 5 * len(self.submatrices)).reshape(-1, 5)
            self._table = list(self.submatrices), table
        return self._table[1].copy()

    def set_submatrices(self, table: NDArray[np.int64]) -> None:
        """Replace all submatrices by a table in the form of `submatrix_table`."""
        self.submatrices = list(map(as_submatrix, table.tolist()))
        self._table = list(self.submatrices), table.copy()

    def groups(self) -> dict[type[Command], CommandGroup]:
        """The commands by class."""
        kept, groups = self._groups or ([], {})
        is_kept = len(kept) == len(self.commands) and all(map(is_, kept, self.commands))
        return groups if is_kept else group_commands(self.commands)

    def keep_groups(self, groups: dict[type[Command], CommandGroup]) -> None:
        """Let `groups()` return `groups`, the commands by class, until a command is changed."""
        self._groups = list(self.commands), groups

    def matrix_sizes(self) -> NDArray[np.int64]:
        """(matrices, 2): rows and columns of each matrix."""
        numbers = itertools.chain.from_iterable(self.matrices)
        return np.fromiter(numbers, np.int64, 3 * len(self.matrices)).reshape(-1, 3)[:, :2]

    def is_whole_matrix(self, submatrix: int) -> bool:
        """Whether a submatrix is all of its matrix."""
        block = self.submatrices[submatrix]
        size = self.matrices[block.matrix_index]
        return block[1:] == (0, size.num_rows, 0, size.num_cols)

    def whole_submatrices(self) -> list[int]:
        """For each matrix, a submatrix that is the whole of it (0 for matrix 0)."""
        whole = [0] * len(self.matrices)
        blocks = {(m, 0, size[0], 0, size[1]): m for m, size in enumerate(self.matrices)}
        for s, block in enumerate(self.submatrices):
            if (matrix := blocks.get(block)) is not None:
                whole[matrix] = s
        if 0 in whole[1:]:
            raise ProgramError(f"no submatrix is the whole of matrix m{whole.index(0, 1)}")
        return whole

    def matrix_of(self, submatrix: int) -> int:
        """The number of the matrix that contains a submatrix."""
        return self.submatrices[submatrix].matrix_index
