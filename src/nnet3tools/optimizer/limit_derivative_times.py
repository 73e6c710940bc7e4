"""Remove backprop outside a range of times (min-deriv-time .. max-deriv-time).

It is for recurrent networks, whose derivatives fade a few steps outside the supervised frames. The
pass comes before all others, because it relies on matrices that are zeroed and written once.
"""

import numpy as np

from nnet3tools.errors import RequestError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.nnet.components.base import Properties
from nnet3tools.nnet.indexes import BoolArray, IntArray
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.options import MAX_TIME
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.optimizer.prune_matrices import prune_matrices
from nnet3tools.optimizer.renumber import remove_no_operations, renumber
from nnet3tools.program.commands import (
    AddRowRanges,
    AddRows,
    Backprop,
    Command,
    CopyRows,
    MatrixAdd,
    MatrixCopy,
    NoOperation,
    Propagate,
    RowsCommand,
)
from nnet3tools.program.computation import Computation


def limit_derivative_times(computation: Computation, context: PassContext) -> Computation:
    """The program without derivative rows at times outside the options' range."""
    options = context.options
    max_time = options.max_deriv_time
    if options.max_deriv_time_relative != MAX_TIME:
        if context.max_output_time is None:
            raise RequestError("max-deriv-time-relative needs a request with outputs")
        max_time = options.max_deriv_time_relative + context.max_output_time
    if max_time < options.min_deriv_time:
        raise RequestError(
            f"max-deriv-time={max_time} is less than min-deriv-time={options.min_deriv_time}"
        )
    if not computation.matrix_debug_info:
        raise RequestError("limiting derivative times needs a program with debug information")
    limiter = _Limiter(computation.copy(), context.nnet, options.min_deriv_time, max_time)
    out = limiter.limited()
    return renumber(remove_no_operations(out))


@dataclass(frozen=True, slots=True)
class _Range:
    """The rows begin..end-1 of a matrix have wanted times; no row has if begin == end."""

    begin: int
    end: int


class _Limiter:
    """Removes derivative rows outside a range of times from one program's commands."""

    def __init__(self, computation: Computation, nnet: Nnet, min_time: int, max_time: int) -> None:
        self.computation, self.nnet = computation, nnet
        self.in_time = [
            (d.indexes[:, 1] >= min_time) & (d.indexes[:, 1] <= max_time)
            for d in computation.matrix_debug_info
        ]
        self.is_deriv = [d.is_deriv for d in computation.matrix_debug_info]
        self.ranges = [_Range(*_span(rows)) for rows in self.in_time]
        self.any_time, self.deriv_only = self._submatrix_maps()
        self.dropped_memos: set[int] = set()

    def limited(self) -> Computation:
        """The program without rows at unwanted times in commands and, where possible, matrices."""
        out = self.computation
        out.commands = [self._limited_command(command) for command in out.commands]
        out.commands = [
            c.replace(memo=0) if isinstance(c, Propagate) and c.memo in self.dropped_memos else c
            for c in out.commands
        ]
        rows = [(r.begin, r.end) for r in self.ranges]
        return prune_matrices(out, self.nnet, rows)

    def _submatrix_maps(self) -> tuple[list[int], list[int]]:
        """Two lists: for each submatrix, the submatrix of its rows at wanted times (0: none).

        The first list is for all submatrices; the second leaves submatrices of values unchanged.
        """
        any_time, deriv_only = [0], [0]
        for s in range(1, len(self.computation.submatrices)):
            info = self.computation.submatrices[s]
            m = info.matrix_index
            begin = max(self.ranges[m].begin, info.row_offset)
            end = min(self.ranges[m].end, info.row_offset + info.num_rows)
            if end <= begin:
                mapped = 0
            elif end - begin == info.num_rows:
                mapped = s
            else:
                mapped = self.computation.new_submatrix(s, begin - info.row_offset, end - begin)
            any_time.append(mapped)
            deriv_only.append(mapped if self.is_deriv[m] else s)
        return any_time, deriv_only

    # -- one command

    def _limited_command(self, command: Command) -> Command:
        if isinstance(command, Propagate):
            # Of steps wholly out of time no statistics are kept.
            return command if self.any_time[command.output] else command.replace(store_stats=False)
        if isinstance(command, Backprop):
            return self._backprop(command)
        if isinstance(command, MatrixCopy | MatrixAdd):
            return self._matrix_op(command)
        if isinstance(command, CopyRows | AddRows):
            return self._rows_op(command)
        if isinstance(command, AddRowRanges):
            return self._ranges_op(command)
        return self._multi_op(command) if isinstance(command, RowsCommand) else command

    def _backprop(self, command: Backprop) -> Command:
        properties = self.nnet.component(command.component).properties
        if Properties.SIMPLE not in properties:
            # Its precomputed indexes speak of all rows.
            return command
        out_deriv = self.any_time[command.out_deriv]
        if out_deriv == 0:
            if command.memo > 0:
                self.dropped_memos.add(command.memo)
            return NoOperation()
        if out_deriv == command.out_deriv or Properties.USES_MEMO in properties:
            return command
        return command.map_submatrices(self.any_time)

    def _matrix_op(self, command: MatrixCopy | MatrixAdd) -> Command:
        dest, src = self.deriv_only[command.dest], self.deriv_only[command.src]
        if dest == 0 or src == 0:
            return NoOperation()
        rows = self.computation.submatrices[command.dest].num_rows
        (d_begin, d_end), (s_begin, s_end) = self._part(command.dest), self._part(command.src)
        begin, end = max(d_begin, s_begin), min(d_end, s_end)
        if end <= begin:
            return NoOperation()
        if end - begin == rows:
            return command
        new = self.computation.new_submatrix
        return command.replace(
            dest=new(command.dest, begin, end - begin), src=new(command.src, begin, end - begin)
        )

    def _rows_op(self, command: CopyRows | AddRows) -> Command:
        dest, src = self.deriv_only[command.dest], self.deriv_only[command.src]
        if dest == 0 or src == 0:
            return NoOperation()
        begin, end = self._part(command.dest)
        rows = command.entries(self.computation)[begin:end]
        kept = (rows >= 0) & self._kept(command.dest)[begin:end]
        kept &= self._kept(command.src)[rows]
        if not kept.any():
            return NoOperation()
        new_rows = np.where(kept, rows - self._part(command.src)[0], -1)
        return command.replace(src=src).with_entries(self.computation, dest, new_rows)

    def _multi_op(self, command: RowsCommand) -> Command:
        own = command.own
        mapped = self.deriv_only[own]
        if mapped == 0:
            return NoOperation()
        begin, end = self._part(own)
        old = command.entries(self.computation)
        pairs = old[begin:end].copy()
        kept = (pairs[:, 0] >= 0) & self._kept(own)[begin:end]
        for s in set(pairs[kept, 0].tolist()):
            here = pairs[:, 0] == s
            kept[here] &= self._kept(s)[pairs[here, 1]]
            pairs[here, 1] -= self._part(s)[0]
            # New submatrices have numbers beyond all in `set(...)`, so that no replacement can
            # match a new number.
            pairs[here, 0] = self.deriv_only[s]
        pairs[~kept] = -1
        if not kept.any():
            return NoOperation()
        if mapped == own and np.array_equal(pairs, old):
            return command
        return command.with_entries(self.computation, mapped, pairs)

    def _ranges_op(self, command: AddRowRanges) -> Command:
        dest, src = self.deriv_only[command.dest], self.deriv_only[command.src]
        if (dest, src) == (command.dest, command.src):
            return command
        if dest == 0 or src == 0:
            return NoOperation()
        begin, end = self._part(command.dest)
        ranges = command.entries(self.computation)[begin:end]
        ranges = _shrunk(ranges, self._kept(command.src))
        empty = (ranges[:, 0] >= ranges[:, 1]) | ~self._kept(command.dest)[begin:end]
        if empty.all():
            return NoOperation()
        ranges = np.where(empty[:, None], -1, ranges - self._part(command.src)[0])
        return command.replace(src=src).with_entries(self.computation, dest, ranges)

    # -- rows of a submatrix

    def _part(self, submatrix: int) -> tuple[int, int]:
        """(begin, end) of the rows that remain of a submatrix, counted from its first row."""
        info = self.computation.submatrices[submatrix]
        mapped = self.deriv_only[submatrix]
        if mapped == 0:
            return 0, 0
        left = self.computation.submatrices[mapped]
        begin = left.row_offset - info.row_offset
        return begin, begin + left.num_rows

    def _kept(self, submatrix: int) -> BoolArray:
        """(rows,) flags: all rows of a value; of a derivative, the rows within the time limits."""
        info = self.computation.submatrices[submatrix]
        if not self.is_deriv[info.matrix_index]:
            return np.ones(info.num_rows, np.bool_)
        return self.in_time[info.matrix_index][info.row_offset : info.row_offset + info.num_rows]


def _span(rows: BoolArray) -> tuple[int, int]:
    wanted = np.flatnonzero(rows)
    return (int(wanted[0]), int(wanted[-1]) + 1) if len(wanted) else (0, 0)


def _shrunk(ranges: IntArray, kept: BoolArray) -> IntArray:
    """Ranges (begin, end), (N, 2), without those rows at both ends that have `kept` false."""
    n = len(kept)
    rows = np.arange(n)
    next_kept = np.minimum.accumulate(np.where(kept, rows, n)[::-1])[::-1]
    last_kept = np.maximum.accumulate(np.where(kept, rows, -1))
    begin = np.append(next_kept, n)[np.maximum(ranges[:, 0], 0)]
    end = np.insert(last_kept + 1, 0, 0)[np.maximum(ranges[:, 1], 0)]
    none = ranges[:, 0] < 0
    return np.stack([np.where(none, -1, begin), np.where(none, -1, end)], axis=1).astype(np.int32)
