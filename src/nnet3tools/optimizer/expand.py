"""Turn a program for two sequences into the same program for N (shortcut compilation).

Every matrix of the small program has debug information that is regular in n. Its rows for n = 0
determine the rows of all sequences.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.nnet.indexes import BoolArray, IndexArray, IntArray
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.shortcut import find_n_stride, find_n_strides, with_num_sequences
from nnet3tools.program.commands import (
    AddRowRanges,
    AddRows,
    Backprop,
    Command,
    CopyRows,
    Propagate,
    RowsCommand,
    has_row,
)
from nnet3tools.program.computation import (
    Computation,
    DebugInfo,
    MatrixInfo,
    PrecomputedInfo,
    as_submatrix,
)

Ints = NDArray[Any]


def expand_computation(computation: Computation, nnet: Nnet, num_sequences: int) -> Computation:
    """The program for sequences n = 0 .. num_sequences - 1, from the one for n = 0, 1.

    ProgramError if the two sequences do not have the same rows of each matrix in a regular order.
    """
    return _Expander(computation, nnet, num_sequences).expanded()


class _Places(NamedTuple):
    """Rows in an expanded submatrix or matrix.

    `row` (rows,) are rows of sequence n = 0; those of sequence n are n * `stride` further.
    `stride` has one number for each row, or one for all rows.
    """

    row: Ints
    stride: Ints

    def for_all(self, num_sequences: int) -> Ints:
        """(rows, num_sequences) the row numbers of all sequences; column n is sequence n."""
        return self.row[:, None] + np.reshape(self.stride, (-1, 1)) * np.arange(num_sequences)


@dataclass(frozen=True, slots=True)
class _ExpandedDebugInfo:
    """Debug information for all sequences, computed from that for two sequences at each access.

    The rows of one sequence are `stride` rows before those of the next. Storing the information
    took 52 of the 310 MB of a pass over chain examples of 25 lengths.
    """

    of_two: DebugInfo
    stride: int
    num_sequences: int

    @property
    def is_deriv(self) -> bool:
        return self.of_two.is_deriv

    @property
    def nodes(self) -> IntArray:
        nodes = self.of_two.nodes.reshape(-1, 2, self.stride)[:, :1]
        return np.repeat(nodes, self.num_sequences, axis=1).reshape(-1)

    @property
    def indexes(self) -> IndexArray:
        return with_num_sequences(self.of_two.indexes, self.stride, self.num_sequences)


class _Expander:
    def __init__(self, computation: Computation, nnet: Nnet, num_sequences: int) -> None:
        self.old, self.nnet, self.n = computation, nnet, num_sequences
        debug = computation.matrix_debug_info[1:]
        strides = find_n_strides([d.indexes for d in debug], [d.nodes for d in debug])
        self.strides = np.array([0, *strides], np.int64)
        if 0 in strides or len(self.strides) != len(computation.matrices):
            raise ProgramError("the program for two sequences is not regular in n")
        self.new = computation.copy()
        self.old_table = computation.submatrix_table()
        self.matrix_of, self.old_offset = self.old_table[:, 0], self.old_table[:, 1]
        self.new_offset = np.zeros(len(self.old_table), np.int64)
        self._of_all: dict[bytes, IndexArray] = {}
        """Maps the bytes of Indexes for two sequences to the Indexes for all sequences."""

    def expanded(self) -> Computation:
        new = self.new
        new.matrices = [
            MatrixInfo(m.num_rows // 2 * self.n, m.num_cols, m.stride_type)
            for m in self.old.matrices
        ]
        debug = zip(self.old.matrix_debug_info, self.strides.tolist(), strict=True)
        new.matrix_debug_info = [
            _ExpandedDebugInfo(d, stride, self.n) if stride else d for d, stride in debug
        ]
        self._expand_submatrices()
        self._expand_precomputed_indexes()
        new.indexes, new.indexes_multi, new.indexes_ranges = [], [], []
        new.commands = [
            self._expanded_command(command) if isinstance(command, RowsCommand) else command
            for command in self.old.commands
        ]
        return new

    # -- rows

    def _new_rows(self, matrix: Ints | int, row: Ints) -> Ints:
        """Rows for all sequences, from rows (`row` of `matrix`) for two; n = 1 becomes the last."""
        stride = self.strides[matrix]
        block, offset = np.divmod(row, 2 * stride)
        n, within = np.divmod(offset, stride)
        return block * self.n * stride + within + np.where(n == 0, 0, self.n - 1) * stride

    def _is_first_sequence(self, matrix: Ints | int, row: Ints) -> BoolArray:
        stride = self.strides[matrix]
        return row % (2 * stride) < stride

    def _places(self, submatrix: Ints | int, row: Ints) -> _Places:
        """For rows of old submatrices that belong to n = 0: the new rows for every n, as _Places.

        `submatrix` is one number for each of the rows, or one for all; `row` counts from its first
        row.
        """
        matrix = self.matrix_of[submatrix]
        in_matrix = row + self.old_offset[submatrix]
        if not self._is_first_sequence(matrix, in_matrix).all():
            raise ProgramError("a row for n = 0 depends on one for n = 1")
        new = self._new_rows(matrix, in_matrix) - self.new_offset[submatrix]
        return _Places(new, self.strides[matrix])

    def _first_sequence_rows(self, submatrix: int) -> Ints:
        """The rows of an old submatrix that belong to n = 0."""
        rows = np.arange(self.old.submatrices[submatrix].num_rows)
        in_matrix = rows + self.old_offset[submatrix]
        return rows[self._is_first_sequence(self.matrix_of[submatrix], in_matrix)]

    # -- tables

    def _expand_submatrices(self) -> None:
        old = self.old_table[1:]
        matrix, first, last = old[:, 0], old[:, 1], old[:, 1] + old[:, 2] - 1
        odd = ~self._is_first_sequence(matrix, first) | self._is_first_sequence(matrix, last)
        if odd.any():
            raise ProgramError(f"submatrix {1 + int(np.argmax(odd))} does not cover both sequences")
        new_first, new_last = self._new_rows(matrix, first), self._new_rows(matrix, last)
        self.new_offset[1:] = new_first
        new = old.copy()
        new[:, 1], new[:, 2] = new_first, new_last - new_first + 1
        self.new.submatrices[1:] = map(as_submatrix, new.tolist())

    def _expand_precomputed_indexes(self) -> None:
        component, backprop = {}, set()
        for command in self.old.commands:
            if isinstance(command, Propagate | Backprop) and command.precomputed:
                component[command.precomputed] = command.component
                if isinstance(command, Backprop):
                    backprop.add(command.precomputed)
        none = np.empty((0, 3), np.int32)
        for p, info in enumerate(self.old.component_precomputed_indexes):
            if p in component:
                inputs, outputs = (
                    self._expanded_indexes(indexes)
                    for indexes in (info.input_indexes, info.output_indexes)
                )
                data = self.nnet.component(component[p]).precompute_indexes(
                    inputs, outputs, p in backprop
                )
                self.new.component_precomputed_indexes[p] = PrecomputedInfo(data, none, none)

    def _expanded_indexes(self, indexes: IndexArray) -> IndexArray:
        size = len(indexes)
        for _ in range(min(5, size)):  # Kaldi's spot check of the stride spends these
            tensor.random.rand_int(0, size - 1)
        if (found := self._of_all.get(content := indexes.tobytes())) is None:
            found = with_num_sequences(indexes, find_n_stride(indexes), self.n)
            self._of_all[content] = found
        return found

    # -- commands

    def _expanded_command(self, command: RowsCommand) -> Command:
        first = self._first_sequence_rows(command.own)
        entries = command.entries(self.old)[first]
        used = has_row(entries)
        first, entries = first[used], entries[used]
        shape = self.new.submatrices[command.own].num_rows, *entries.shape[1:]
        out = np.full(shape, -1, np.int32)
        out[self._own_rows(command.own, first)] = self._expanded_entries(command, entries)
        return command.with_entries(self.new, command.own, out)

    def _own_rows(self, submatrix: int, rows: Ints) -> Ints:
        """(rows, sequences): new rows of all sequences for the old submatrix's `rows` of n = 0."""
        return self._places(submatrix, rows).for_all(self.n)

    def _expanded_entries(self, command: RowsCommand, entries: Ints) -> Ints:
        """Entries of a command's list for all sequences, from the `entries` for n = 0.

        The shape is (rows, sequences), or (rows, sequences, 2) for entries that are pairs.
        """
        if isinstance(command, CopyRows | AddRows):
            return self._own_rows(command.src, entries)
        first, second = entries.T
        if isinstance(command, AddRowRanges):
            begin, last = (self._own_rows(command.src, rows) for rows in (first, second - 1))
            return np.stack([begin, last + 1], axis=-1)
        rows = self._places(first, second).for_all(self.n)
        return np.stack(np.broadcast_arrays(first[:, None], rows), axis=-1)
