"""Compress matrices between the forward and the backward pass, if only backprop reads them."""

from typing import NamedTuple

import numpy as np

from nnet3tools import tensor
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.program.analysis import Analysis
from nnet3tools.program.commands import (
    Backprop,
    Command,
    CompressionType,
    CompressMatrix,
    DecompressMatrix,
    NoOperationMarker,
)
from nnet3tools.program.computation import Computation
from nnet3tools.program.operands import AccessType


class _Compression(NamedTuple):
    """A matrix (values up to `range`) to compress from command `last_forward` to `backward`."""

    matrix: int
    last_forward: int
    backward: int
    format: CompressionType
    range: float


def memory_compression(computation: Computation, context: PassContext) -> Computation:
    """The program with matrices compressed between forward and backward, by the options' level.

    Level 1 stores a ReLU output in one byte, if backprop needs its sign only; that is exact. Level
    2 also stores all others in two bytes, within [-10, 10], which changes derivatives slightly.
    """
    markers = [c for c, cmd in enumerate(computation.commands) if type(cmd) is NoOperationMarker]
    if len(markers) != 1:
        return computation
    analysis = context.analyst.analyze(computation)
    accesses, is_output = analysis.matrix_accesses, analysis.lifetimes.is_output
    early, late = accesses.first(markers[0]) < markers[0], accesses.last(-1) > markers[0]
    compressions = [
        compression
        for matrix in np.flatnonzero(early & late & ~is_output).tolist()
        if (compression := _compression(analysis, context, matrix, markers[0]))
    ]
    return _inserted(computation, compressions) if compressions else computation


def _compression(
    analysis: Analysis, context: PassContext, matrix: int, marker: int
) -> _Compression | None:
    """How to compress a matrix with accesses before and after the command `marker`, if at all."""
    commands, types = analysis.matrix_accesses.of_item(matrix)
    split = int(np.searchsorted(commands, marker))
    forward, backward = int(commands[split - 1]), int(commands[split])
    command = analysis.computation.commands[backward]
    only_signs = (
        split == len(commands) - 1
        and types[split] == AccessType.READ
        and type(command) is Backprop
        and context.nnet.component(command.component).backprop_reads_signs_only
    )
    if only_signs:
        return _Compression(matrix, forward, backward, CompressionType.UINT8, 0.0)
    if context.options.memory_compression_level >= 2:
        return _Compression(matrix, forward, backward, CompressionType.INT16, 10.0)
    return None


def _inserted(computation: Computation, compressions: list[_Compression]) -> Computation:
    tensor.random.rand_int(0, 3)  # Kaldi's InsertCommands spends this on checking its argument
    whole = computation.whole_submatrices()
    before: dict[int, list[Command]] = {}
    for c in compressions:
        s = whole[c.matrix]
        compress = CompressMatrix(s, c.format, True, c.range)
        before.setdefault(c.last_forward + 1, []).append(compress)
        before.setdefault(c.backward, []).append(DecompressMatrix(s))
    out = computation.copy()
    out.commands = []
    for position, command in enumerate(computation.commands):
        out.commands += before.get(position, ())
        out.commands.append(command)
    return out
