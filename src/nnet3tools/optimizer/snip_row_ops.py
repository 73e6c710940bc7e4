"""Shorten row operations whose index lists begin or end with "no row" (-1)."""

import numpy as np

from nnet3tools.nnet.indexes import BoolArray, IntArray
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.program.commands import (
    AddRowRanges,
    AddRows,
    AddRowsMulti,
    AddToRowsMulti,
    Command,
    CopyToRowsMulti,
)
from nnet3tools.program.computation import Computation


def snip_row_ops(computation: Computation, context: PassContext) -> Computation:
    """The program without the leading and trailing rows that AddRows and similar commands skip.

    CopyRows and CopyRowsMulti do not change, because their "no row" means a row of zeros.
    """
    out = computation.copy()
    out.commands = [
        _snipped(out, command) if type(command) in _SNIPPED else command for command in out.commands
    ]
    return out


_SNIPPED = frozenset({AddRows, AddRowsMulti, AddToRowsMulti, CopyToRowsMulti, AddRowRanges})


def _snipped(computation: Computation, command: Command) -> Command:
    if isinstance(command, AddRows):
        rows = computation.indexes[command.indexes]
        span = _used_span(rows >= 0)
        if span is None:
            return command
        return command.replace(
            dest=_rows_of(computation, command.dest, span),
            indexes=computation.new_indexes(_cut(rows, span)),
        )
    if isinstance(command, AddRowsMulti | AddToRowsMulti | CopyToRowsMulti):
        pairs = computation.indexes_multi[command.indexes_multi]
        span = _used_span(pairs[:, 0] >= 0)
        if span is None:
            return command
        own = _rows_of(computation, getattr(command, command.OWN), span)
        new_multi = computation.new_indexes_multi(_cut(pairs, span))
        return command.replace(**{command.OWN: own, "indexes_multi": new_multi})
    if isinstance(command, AddRowRanges):
        ranges = computation.indexes_ranges[command.indexes_ranges]
        span = _used_span(ranges[:, 0] != ranges[:, 1])
        if span is None:
            return command
        return command.replace(
            dest=_rows_of(computation, command.dest, span),
            indexes_ranges=computation.new_indexes_ranges(_cut(ranges, span)),
        )
    return command


def _used_span(used: BoolArray) -> tuple[int, int] | None:
    """(begin, end) from the first to the last row with an effect; None if that is all rows."""
    rows = np.flatnonzero(used)
    if len(rows) == 0 or (rows[0] == 0 and rows[-1] == len(used) - 1):
        return None
    return int(rows[0]), int(rows[-1]) + 1


def _cut(rows: IntArray, span: tuple[int, int]) -> IntArray:
    return rows[span[0] : span[1]]


def _rows_of(computation: Computation, submatrix: int, span: tuple[int, int]) -> int:
    return computation.new_submatrix(submatrix, span[0], span[1] - span[0])
