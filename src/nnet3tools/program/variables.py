"""The variables of a program (Kaldi's ComputationVariables, nnet-analyze.h).

A *variable* is a block of a matrix. The variables of a matrix are the coarsest blocks of which
every submatrix consists. Tables are arrays in CSR form, computed at first use.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools.graph.computation_graph import concatenated_ranges, sorted_unique
from nnet3tools.program.computation import Computation, SubMatrixInfo

Ints = NDArray[np.int64]

_ZERO = np.zeros(1, np.int64)


class _Splits(NamedTuple):
    """The positions at which submatrices cut the rows (or the columns) of each matrix.

    Matrix m is cut at points[offsets[m] : offsets[m + 1]], ascending, with both of its ends.
    Submatrix s begins at cut first[s] and ends at cut last[s] of its matrix.
    """

    points: Ints
    offsets: Ints
    first: Ints
    last: Ints


def _split(matrix: Ints, begin: Ints, end: Ints, num_matrices: int, sizes: Ints) -> _Splits:
    """The _Splits: where the submatrices cut the rows (or the columns) of their matrices.

    Submatrix s is rows (columns) begin[s] to end[s] - 1 of matrix[s]; matrix m has sizes[m].
    """
    width = int(sizes.max(initial=0)) + 1
    keys_begin, keys_end = matrix * width + begin, matrix * width + end
    keys = sorted_unique(np.concatenate([keys_begin, keys_end]))
    offsets = keys.searchsorted(np.arange(num_matrices + 1) * width)
    first = keys.searchsorted(keys_begin) - offsets[matrix]
    last = keys.searchsorted(keys_end) - offsets[matrix]
    return _Splits(keys % width, offsets, first, last)


class _Blocks(NamedTuple):
    """The division of matrices into variables: blocks between cuts of `rows` and of `cols`.

    Matrix m has the variables from matrix_offsets[m] on: rows of num_col_variables[m] blocks each.
    """

    rows: _Splits
    cols: _Splits
    num_col_variables: Ints
    matrix_offsets: Ints


class Variables:
    """The variables of a program: the coarsest blocks of which every submatrix consists."""

    def __init__(self, computation: Computation) -> None:
        self.submatrix_table = computation.submatrix_table()
        """(submatrices, 5): the fields of SubMatrixInfo."""
        self.matrix_of_submatrix: Ints = self.submatrix_table[:, 0]
        self._sizes = computation.matrix_sizes()

    @cached_property
    def is_whole(self) -> NDArray[np.bool_]:
        """(submatrices,) whether each submatrix is its whole matrix."""
        at_start = (self.submatrix_table[:, 1] == 0) & (self.submatrix_table[:, 3] == 0)
        of_size = self.submatrix_table[:, 2::2] == self._sizes[self.matrix_of_submatrix]
        return at_start & of_size[:, 0] & of_size[:, 1]

    @cached_property
    def _blocks(self) -> _Blocks:
        sub, matrix, sizes = self.submatrix_table, self.matrix_of_submatrix, self._sizes
        rows = _split(matrix, sub[:, 1], sub[:, 1] + sub[:, 2], len(sizes), sizes[:, 0])
        cols = _split(matrix, sub[:, 3], sub[:, 3] + sub[:, 4], len(sizes), sizes[:, 1])
        num_rows = np.maximum(rows.offsets[1:] - rows.offsets[:-1] - 1, 0)
        num_cols = np.maximum(cols.offsets[1:] - cols.offsets[:-1] - 1, 0)
        num_rows[:1] = 0  # matrix 0 is none
        matrix_offsets = np.concatenate([_ZERO, (num_rows * num_cols).cumsum()])
        return _Blocks(rows, cols, num_cols, matrix_offsets)

    @property
    def matrix_offsets(self) -> Ints:
        """(matrices + 1,) the first variable of each matrix."""
        return self._blocks.matrix_offsets

    @property
    def num_variables(self) -> int:
        """The number of variables, blocks of which submatrices consist, of all matrices."""
        return int(self.matrix_offsets[-1])

    @cached_property
    def matrix_of(self) -> Ints:
        """(variables,) the matrix that contains each variable."""
        return np.repeat(np.arange(len(self._sizes)), np.diff(self.matrix_offsets))

    @cached_property
    def all_of_submatrices(self) -> tuple[Ints, Ints]:
        """(v, offsets): submatrix s is made of the variables v[offsets[s] : offsets[s + 1]]."""
        blocks, matrix = self._blocks, self.matrix_of_submatrix
        height = blocks.rows.last - blocks.rows.first
        width = blocks.cols.last - blocks.cols.first
        height[:1] = 0
        # First one entry for each row of blocks, then the blocks of each row.
        owner = np.arange(len(height)).repeat(height)
        row = concatenated_ranges(blocks.rows.first, height)
        start = (
            blocks.matrix_offsets[matrix[owner]]
            + row * blocks.num_col_variables[matrix[owner]]
            + blocks.cols.first[owner]
        )
        variables = concatenated_ranges(start, width[owner])
        return variables, np.concatenate([_ZERO, (height * width).cumsum()])

    def of_submatrix(self, submatrix: int) -> Ints:
        """The variables that make up a submatrix, sorted."""
        variables, offsets = self.all_of_submatrices
        return variables[offsets[submatrix] : offsets[submatrix + 1]]

    def of_submatrices(self, submatrices: Ints) -> tuple[Ints, Ints]:
        """The variables of many submatrices: (position in `submatrices`, variable), both (M,)."""
        variables, offsets = self.all_of_submatrices
        start = offsets[submatrices]
        count = offsets[submatrices + 1] - start
        owner = np.arange(len(submatrices)).repeat(count)
        return owner, variables[concatenated_ranges(start, count)]

    def of_matrix(self, matrix: int) -> range:
        """The range of variables that make up a matrix."""
        return range(int(self.matrix_offsets[matrix]), int(self.matrix_offsets[matrix + 1]))

    def block(self, variable: int) -> SubMatrixInfo:
        """The block of a matrix that a variable stands for."""
        rows, cols, num_cols, matrix_offsets = self._blocks
        matrix = int(self.matrix_of[variable])
        row, col = divmod(variable - int(matrix_offsets[matrix]), int(num_cols[matrix]))
        r = rows.points[rows.offsets[matrix] + row :][:2]
        c = cols.points[cols.offsets[matrix] + col :][:2]
        return SubMatrixInfo(matrix, int(r[0]), int(r[1] - r[0]), int(c[0]), int(c[1] - c[0]))

    def describe(self, variable: int, computation: Computation) -> str:
        """A variable as text, such as "m3" or "m3(0:9,:)"."""
        matrix, row, num_rows, col, num_cols = self.block(variable)
        size = computation.matrices[matrix]
        if (num_rows, num_cols) == size[:2]:
            return f"m{matrix}"
        rows = ":" if num_rows == size.num_rows else f"{row}:{row + num_rows - 1}"
        cols = ":" if num_cols == size.num_cols else f"{col}:{col + num_cols - 1}"
        return f"m{matrix}({rows},{cols})"
