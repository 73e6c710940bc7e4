"""Replace Multi row operations on one or two submatrices by plain ones."""

import itertools
from typing import NamedTuple

import numpy as np

from nnet3tools import tensor
from nnet3tools.nnet.indexes import IntArray, is_increasing
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.program.commands import (
    AddRows,
    AddRowsMulti,
    AddToRowsMulti,
    Command,
    CopyRows,
    CopyRowsMulti,
    CopyToRowsMulti,
    MatrixAdd,
    MatrixCopy,
    MultiCommand,
)
from nnet3tools.program.computation import Computation

_MAX_SIZE_RATIO = 2
"""A plain operation may span at most this many times the rows it touches."""


def split_row_ops(computation: Computation, context: PassContext) -> Computation:
    """The program with Multi commands replaced by up to two copies or additions of rows."""
    splits = [_split(pairs) for pairs in computation.indexes_multi]
    if not any(splits):
        return computation
    out = computation.copy()
    commands: list[Command] = []
    for command in out.commands:
        parts = None
        if isinstance(command, MultiCommand):
            parts = _plain_commands(out, command, splits[command.indexes_multi])
        commands += parts or [command]
    if len(commands) > len(out.commands):
        tensor.random.rand_int(0, 3)  # Kaldi's InsertCommands spends this on checking its argument
    out.commands = commands
    return out


class _Part(NamedTuple):
    """Successive (submatrix, row) pairs of a Multi command that name one submatrix.

    They are pairs `offset` to `offset` + `size` - 1, and name rows within the `span` rows from
    `first_row`: first_row + rows[i]; all of them in order if `rows` is None.
    """

    offset: int
    size: int
    submatrix: int
    first_row: int
    span: int
    rows: IntArray | None


def _split(pairs: IntArray) -> list[_Part] | None:
    """`pairs` as one or two parts with one submatrix each; None for more, -1 or too sparse rows."""
    changes = np.flatnonzero(pairs[1:, 0] != pairs[:-1, 0]) + 1
    if len(changes) > 1 or int(pairs.min(initial=0)) < 0:
        return None
    bounds = [0, *changes.tolist(), len(pairs)]
    parts = []
    for begin, end in itertools.pairwise(bounds):
        rows = pairs[begin:end, 1]
        first, relative = int(rows[0]), None
        span = int(rows[-1]) - first + 1
        if span != len(rows) or not is_increasing(rows):
            first = int(rows.min())
            span, relative = int(rows.max()) - first + 1, rows - first
        if span > _MAX_SIZE_RATIO * len(rows):
            return None
        parts.append(_Part(begin, end - begin, int(pairs[begin, 0]), first, span, relative))
    return parts


def _plain_commands(
    computation: Computation, command: MultiCommand, parts: list[_Part] | None
) -> list[Command] | None:
    if parts is None:
        return None
    scattered_copy = isinstance(command, CopyToRowsMulti) and any(p.rows is not None for p in parts)
    if scattered_copy:
        # CopyRows would zero the rows in between, which CopyToRowsMulti leaves alone.
        return None
    return [_plain_command(computation, command, part) for part in parts]


def _plain_command(computation: Computation, command: MultiCommand, part: _Part) -> Command:
    own = computation.new_submatrix(command.own, part.offset, part.size)
    other = computation.new_submatrix(part.submatrix, part.first_row, part.span)
    gathers = isinstance(command, AddRowsMulti | CopyRowsMulti)
    dest, src = (own, other) if gathers else (other, own)
    adds = isinstance(command, AddRowsMulti | AddToRowsMulti)
    if part.rows is None:
        return (MatrixAdd if adds else MatrixCopy)(dest, src, command.alpha)
    rows = part.rows
    if not gathers:
        rows = np.full(part.span, -1, np.int32)
        rows[part.rows] = np.arange(part.size, dtype=np.int32)
    return (AddRows if adds else CopyRows)(dest, src, computation.new_indexes(rows), command.alpha)
