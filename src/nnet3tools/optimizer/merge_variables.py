"""Let two matrices share memory where one is made from the other and then takes its place.

Three kinds of commands make a submatrix s2 of another s1: MatrixCopy (remove-assignments),
Propagate of a component that can work in place (propagate-in-place) and Backprop likewise
(backprop-in-place). Merging makes all of one matrix a part of the other; it runs in rounds, each
with a fresh analysis, until no more is found (after Kaldi's VariableMergingOptimizer).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.nnet.components.base import Properties
from nnet3tools.nnet.indexes import BoolArray
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.access_times import AccessTimes, is_zeroing
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.optimizer.renumber import remove_no_operations, renumber
from nnet3tools.program.commands import (
    AcceptInput,
    Backprop,
    Command,
    MatrixCopy,
    NoOperation,
    Propagate,
)
from nnet3tools.program.computation import Computation, StrideType

__all__ = [
    "Conditions",
    "Merge",
    "legal_merge",
    "merge_conditions",
    "merge_variables",
    "order_allows",
]


def merge_variables(computation: Computation, nnet: Nnet, options: OptimizeOptions) -> Computation:
    """Merge variables until nothing is left to merge."""
    while True:
        merger = _Round(computation.copy(), nnet, options)
        if not merger.run():
            return computation
        computation = remove_no_operations(renumber(merger.computation))


@dataclass(frozen=True, slots=True)
class Merge:
    """One opportunity: the command at `position` makes submatrix `s2` from `s1`."""

    position: int
    s1: int
    s2: int


def candidate(command: Command, nnet: Nnet, options: OptimizeOptions) -> tuple[int, int] | None:
    """The (s1, s2) that a command would let us merge, legality aside."""
    if isinstance(command, MatrixCopy):
        return (command.src, command.dest) if options.remove_assignments else None
    if isinstance(command, Propagate) and options.propagate_in_place:
        if Properties.PROPAGATE_IN_PLACE in nnet.component(command.component).properties:
            return command.input, command.output
    if isinstance(command, Backprop) and options.backprop_in_place:
        if Properties.BACKPROP_IN_PLACE in nnet.component(command.component).properties:
            pair = command.out_deriv, command.in_deriv
            if not {command.in_value, command.out_value} & set(pair):
                return pair
    return None


class Conditions(NamedTuple):
    """What a merge must fulfil, order aside; left and right both need c1, c2 and c5."""

    c1: bool
    """Not both matrices are inputs, nor both outputs, of the program."""
    c2: bool
    """If either is an input or output, s1 and s2 are both whole matrices."""
    c3: bool
    """Left only: s2 is the whole of its matrix."""
    c4: bool
    """Right only: s1 is the whole of its matrix."""
    c5: bool
    """Neither has been merged with anything in this round (no variable is dirty)."""
    c6: bool
    """Left only: s1 is whole, too, where s2's matrix needs rows without padding."""
    c7: bool
    """Right only: s2 is whole, too, where s1's matrix needs rows without padding."""

    @property
    def left(self) -> bool:
        """Whether s1 may stay and s2's matrix become part of it."""
        return self.c1 and self.c2 and self.c3 and self.c5 and self.c6

    @property
    def right(self) -> bool:
        """Whether s2 may stay and s1's matrix become part of it."""
        return self.c1 and self.c2 and self.c4 and self.c5 and self.c7


def merge_conditions(times: AccessTimes, merge: Merge, dirty: BoolArray) -> Conditions:
    """Judge one opportunity; `dirty` tells which variables were merged in this round."""
    computation, analysis = times.analysis.computation, times.analysis
    m1, m2 = computation.matrix_of(merge.s1), computation.matrix_of(merge.s2)
    is_input, is_output = analysis.is_input, analysis.is_output
    whole1, whole2 = (bool(analysis.variables.is_whole[s]) for s in (merge.s1, merge.s2))
    for_user = is_input[m1] or is_input[m2] or is_output[m1] or is_output[m2]
    packed1, packed2 = (
        computation.matrices[m].stride_type == StrideType.EQUAL_NUM_COLS for m in (m1, m2)
    )
    return Conditions(
        c1=not (is_input[m1] and is_input[m2]) and not (is_output[m1] and is_output[m2]),
        c2=not for_user or (whole1 and whole2),
        c3=whole2,
        c4=whole1,
        c5=not (dirty[times.variables(merge.s1)].any() or dirty[times.variables(merge.s2)].any()),
        c6=not packed2 or whole1,
        c7=not packed1 or whole2,
    )


def order_allows(times: AccessTimes, merge: Merge) -> bool:
    """Whether the order of accesses lets s1 and s2 share memory.

    For a copy with scale 1: nothing (but zeroing) touches s2 before the command; nothing writes s1
    after it; s1 is not read any more once the value in s2 is overwritten or freed. For all else:
    nothing but zeroing touches s2 before, nothing touches s1 after the command.
    """
    command = times.analysis.computation.commands[merge.position]
    if times.first_nontrivial_access(merge.s2) != merge.position:
        return False
    if type(command) is MatrixCopy and command.alpha == 1.0:
        return times.last_write_access(merge.s1) < merge.position and times.last_access(
            merge.s1
        ) < times.data_invalidated(merge.position, merge.s2)
    return times.last_access(merge.s1) == merge.position


def legal_merge(
    times: AccessTimes, merge: Merge, options: OptimizeOptions, dirty: BoolArray
) -> tuple[bool, bool]:
    """(left, right): whether s1 may stay and s2's matrix become part of it, and the reverse."""
    computation = times.analysis.computation
    if computation.matrix_of(merge.s1) == computation.matrix_of(merge.s2):
        return False, False
    conditions = merge_conditions(times, merge, dirty)
    left = options.allow_left_merge and conditions.left
    right = options.allow_right_merge and conditions.right
    if not (left or right) or not order_allows(times, merge):
        return False, False
    return left, right


@dataclass(slots=True)
class _Round:
    """One sweep over the commands with one analysis; `computation` is changed in place."""

    computation: Computation
    nnet: Nnet
    options: OptimizeOptions
    times: AccessTimes = field(init=False)
    dirty: BoolArray = field(init=False)
    submatrices_of: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def run(self) -> bool:
        """Do every merge that is legal; whether there was any."""
        # The analysis keeps the program as it was: merging changes `computation` under way.
        self.times = AccessTimes(self.computation.copy(), self.nnet)
        self.dirty = np.zeros(self.times.analysis.variables.num_variables, np.bool_)
        for s, info in enumerate(self.computation.submatrices):
            self.submatrices_of[info.matrix_index].append(s)
        for position, command in enumerate(self.times.analysis.computation.commands):
            pair = candidate(command, self.nnet, self.options)
            if pair is None or 0 in pair:
                continue
            merge = Merge(position, *pair)
            left, right = legal_merge(self.times, merge, self.options, self.dirty)
            if left:
                self._merge(position, keep=merge.s1, discard=merge.s2)
            elif right:
                self._merge(position, keep=merge.s2, discard=merge.s1)
        return bool(self.dirty.any())

    def _merge(self, position: int, keep: int, discard: int) -> None:
        for s in (keep, discard):
            self.dirty[self.times.variables(s)] = True
        before = self.times.analysis.computation
        m_keep, m_discard = before.matrix_of(keep), before.matrix_of(discard)
        self._move_submatrices(keep, m_discard)
        command = before.commands[position]
        if type(command) is MatrixCopy and command.alpha == 1.0:
            self.computation.commands[position] = NoOperation()
        self._join_lifetimes(m_keep, m_discard)
        if before.matrices[m_discard].stride_type == StrideType.EQUAL_NUM_COLS:
            self.computation.matrices[m_keep] = self.computation.matrices[m_keep]._replace(
                stride_type=StrideType.EQUAL_NUM_COLS
            )

    def _move_submatrices(self, keep: int, m_discard: int) -> None:
        """Make every submatrix of the discarded matrix the same part of submatrix `keep`."""
        base = self.computation.submatrices[keep]
        for s in self.submatrices_of[m_discard]:
            info = self.computation.submatrices[s]
            self.computation.submatrices[s] = info._replace(
                matrix_index=base.matrix_index,
                row_offset=base.row_offset + info.row_offset,
                col_offset=base.col_offset + info.col_offset,
            )

    def _join_lifetimes(self, m_keep: int, m_discard: int) -> None:
        """Leave one allocation and one deallocation of the two, and no zeroing in between."""
        analysis, commands = self.times.analysis, self.computation.commands
        free_keep, free_discard = (int(analysis.deallocate_command[m]) for m in (m_keep, m_discard))
        if max(free_keep, free_discard) == -1:
            raise ProgramError(f"m{m_keep} and m{m_discard} are merged but neither is ever freed")
        # The matrix that is an output has none; the other's must go then.
        commands[free_discard if free_discard != -1 else free_keep] = NoOperation()
        allocate_keep, allocate_discard = (
            int(analysis.allocate_command[m]) for m in (m_keep, m_discard)
        )
        # An AcceptInput must stay where it is, so then the other's allocation goes.
        dropped = m_discard
        if isinstance(commands[allocate_discard], AcceptInput):
            dropped = m_keep
        commands[allocate_keep if dropped == m_keep else allocate_discard] = NoOperation()
        first = int(analysis.matrix_accesses.of(dropped)[0][0])
        if is_zeroing(analysis.computation.commands[first]):
            commands[first] = NoOperation()
