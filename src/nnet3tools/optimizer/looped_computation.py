"""Turn a program for many equal chunks of a stream into a loop.

The matrices that are alive between two chunks are the state. If the state before one chunk equals
the state before an earlier chunk, shifted in time, the program swaps the later matrices with the
earlier ones and jumps back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.nnet.indexes import NO_TIME
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.access_times import AccessTimes
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.optimizer.renumber import renumber
from nnet3tools.program.analysis import Analysis
from nnet3tools.program.commands import (
    Command,
    GotoLabel,
    NoOperationLabel,
    NoOperationMarker,
    NoOperationPermanent,
    ProvideOutput,
    RowsCommand,
    SwapMatrix,
)
from nnet3tools.program.component_facts import ComponentTable
from nnet3tools.program.computation import Computation, DebugInfo


class _Content(NamedTuple):
    """The cindexes of a matrix's rows: equal but for a time shift if only `time` differs.

    `time` is the first time of a row; `shape` are the cindexes with `time` subtracted, as bytes.
    """

    shape: bytes
    is_deriv: bool
    time: int


def looped_computation(computation: Computation, context: PassContext) -> Computation:
    """The program closed to a loop where its state repeats for the first time.

    States (the matrices alive) are compared at the NoOperationPermanent commands: each chunk has
    one, after its inputs. If no state repeats, because of too few chunks, the program is unchanged.
    """
    if not computation.matrix_debug_info:
        raise ProgramError("looped optimization needs debug information")
    splices = [c for c, cmd in enumerate(computation.commands) if type(cmd) is NoOperationPermanent]
    shift = _time_shift(computation)
    contents = [_content(debug) for debug in computation.matrix_debug_info[1:]]
    states = _states(computation, context.nnet, splices)
    if (repeat := _first_repeat(states, contents, shift)) is None:
        return computation
    first, second = repeat
    kept = {m1 for m1, m2 in zip(states[first], states[second], strict=True) if m1 == m2}
    if kept and not _used_alike(computation, context.nnet, splices, repeat, kept):
        return computation
    handed_over = [
        (m1, m2) for m1, m2 in zip(states[first], states[second], strict=True) if m1 != m2
    ]
    for m1, m2 in handed_over:
        if computation.matrices[m1] != computation.matrices[m2]:
            raise ProgramError(f"m{m2} cannot take the place of m{m1}: their sizes differ")
    out = computation.copy()
    whole = out.whole_submatrices()
    begin, end = splices[first], splices[second]
    out.commands = [*out.commands[:begin], NoOperationLabel(), *out.commands[begin:end]]
    out.commands += [SwapMatrix(whole[m1], whole[m2]) for m1, m2 in _swap_order(handed_over)]
    out.commands.append(GotoLabel(begin))
    return fix_goto_label(renumber(out))


def fix_goto_label(computation: Computation) -> Computation:
    """The looped program with the label's present position in its GotoLabel command."""
    label = [c for c, cmd in enumerate(computation.commands) if type(cmd) is NoOperationLabel]
    out = computation.copy()
    for c, command in enumerate(out.commands):
        if isinstance(command, GotoLabel):
            if not label:
                raise ProgramError(f"command c{c} goes to a label that is not there")
            out.commands[c] = command.replace(label=label[0])
    return out


def _time_shift(computation: Computation) -> int:
    """The number of frames from the second chunk's output to the third's."""
    outputs: list[list[DebugInfo]] = [[]]
    for command in computation.commands:
        if isinstance(command, NoOperationMarker):
            outputs.append([])
        elif isinstance(command, ProvideOutput):
            matrix = computation.matrix_of(command.submatrix)
            outputs[-1].append(computation.matrix_debug_info[matrix])
    if len(outputs) < 4 or not outputs[1] or not outputs[2]:
        raise ProgramError("a looped program needs outputs in at least three chunks")
    second, third = outputs[1][0].indexes[:, 1], outputs[2][0].indexes[:, 1]
    if len(second) != len(third) or (third - second != third[0] - second[0]).any():
        raise ProgramError("the chunks of a looped program do not differ by a shift in time")
    return int(third[0] - second[0])


def _content(debug: DebugInfo) -> _Content:
    indexes = debug.indexes.copy()
    timed = indexes[:, 1] != NO_TIME
    if not timed.any():
        raise ProgramError("a matrix of a looped program has no row with a time")
    time = int(indexes[timed, 1][0])
    indexes[timed, 1] -= time
    return _Content(indexes.tobytes() + debug.nodes.tobytes(), debug.is_deriv, time)


def _states(computation: Computation, nnet: Nnet, splices: list[int]) -> list[list[int]]:
    """For each command number in `splices`, the matrices written before it and used after it."""
    times = AccessTimes(Analysis(computation, nnet))
    whole = np.array(computation.whole_submatrices()[1:], np.int64)
    first, last = times.first_nontrivial_access(whole), times.last_access(whole)
    return [(1 + np.flatnonzero((first < c) & (last > c))).tolist() for c in splices]


def _first_repeat(
    states: list[list[int]], contents: list[_Content], shift: int
) -> tuple[int, int] | None:
    """The first two positions in `states` with equal states; None if there are none.

    Equal states have the same matrices, or matrices whose `contents` (from matrix 1 on) are
    equal but for a time shift. `shift` is the number of frames of a chunk.
    """

    def same(a: int, b: int, shift: int) -> bool:
        x, y = contents[a - 1], contents[b - 1]
        alike = (x.shape, x.is_deriv) == (y.shape, y.is_deriv)
        return a == b or (alike and y.time - x.time == shift)

    for i, earlier in enumerate(states):
        for j in range(i + 1, len(states)):
            later = states[j]
            if len(earlier) == len(later) and all(
                same(a, b, (j - i) * shift) for a, b in zip(earlier, later, strict=True)
            ):
                return i, j
    return None


def _used_alike(
    computation: Computation,
    nnet: Nnet,
    splices: list[int],
    repeat: tuple[int, int],
    kept: set[int],
) -> bool:
    """Whether each round of the loop would read the same rows of the matrices in `kept`.

    The loop would be between the two commands of `splices` with the numbers in `repeat`. False
    if one matrix has the frames of several rounds, as with much left context and small chunks.
    (Kaldi makes a loop of it all the same, with wrong results.)
    """
    first, second = repeat
    third = 2 * second - first
    if third >= len(splices):
        return False

    components = ComponentTable(nnet)

    def uses(begin: int, end: int) -> list[tuple[object, ...]]:
        return [
            (type(command), computation.submatrices[s], _rows_named(computation, command, s))
            for command in computation.commands[begin:end]
            for s, _ in command.accesses(computation, components)
            if computation.matrix_of(s) in kept
        ]

    return uses(splices[first], splices[second]) == uses(splices[second], splices[third])


def _rows_named(computation: Computation, command: Command, submatrix: int) -> bytes:
    """The rows of a submatrix that a row command names, as bytes; empty for other commands."""
    if not isinstance(command, RowsCommand):
        return b""
    rows = command.entries(computation)
    if command.LIST == "indexes_multi":
        rows = np.where(rows[:, 0] == submatrix, rows[:, 1], np.int32(-1))
    return rows.tobytes()


def _swap_order(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Swaps (destination, source) ordered so that contents leave a matrix before others arrive."""
    swaps: list[tuple[int, int]] = []
    waiting = list(pairs)
    while waiting:
        givers = {m2 for _, m2 in waiting}
        ready = [pair for pair in waiting if pair[0] not in givers]
        if not ready:
            raise ProgramError("matrices of a loop hand their contents around in a circle")
        swaps += ready
        waiting = [pair for pair in waiting if pair not in ready]
    return swaps
