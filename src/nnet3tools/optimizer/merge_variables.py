"""Let two matrices share memory if one is computed from the other and then replaces it.

Three kinds of commands compute a submatrix s2 from another, s1: MatrixCopy (remove-assignments),
Propagate of a component that can work in place (propagate-in-place), and Backprop of such a
component (backprop-in-place). Merging makes one whole matrix a part of the other. It runs in
rounds, each with a new analysis, until there is nothing to merge (after Kaldi's
VariableMergingOptimizer).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import ProgramError
from nnet3tools.nnet.indexes import BoolArray
from nnet3tools.optimizer.access_times import AccessTimes, is_zeroing
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.optimizer.renumber import remove_no_operations, renumber
from nnet3tools.program.analysis import Analysis
from nnet3tools.program.commands import AcceptInput, Backprop, MatrixCopy, NoOperation, Propagate
from nnet3tools.program.computation import Computation, StrideType

Ints = NDArray[np.int64]


def merge_variables(computation: Computation, context: PassContext) -> Computation:
    """The program with pairs of matrices merged until no legal merge is left."""
    while True:
        merger = _Round(computation, context)
        if not merger.run():
            return computation
        computation = remove_no_operations(merger.computation)
        computation = renumber(computation, context.origins, merger.table)


class Merges(NamedTuple):
    """Possible merges of matrices: command positions[i] computes submatrix s2[i] from s1[i]."""

    positions: Ints
    s1: Ints
    s2: Ints

    def where(self, mask: BoolArray | Ints) -> Merges:
        """The merges for which `mask` is true, or those with the numbers in `mask`."""
        return Merges(self.positions[mask], self.s1[mask], self.s2[mask])


def opportunities(analysis: Analysis, context: PassContext) -> Merges:
    """The merges that a copy or an in-place component suggests, legal or not, in program order."""
    options = context.options
    components = analysis.components
    found = [Merges(*np.empty((3, 0), np.int64))]
    for cls, group in analysis.groups.items():
        if cls is MatrixCopy and options.remove_assignments:
            found.append(Merges(group.positions, group.column("src"), group.column("dest")))
        elif cls is Propagate and options.propagate_in_place:
            able = components.column("propagate_in_place", group.column("component"))
            pair = group.column("input"), group.column("output")
            found.append(Merges(group.positions, *pair).where(able))
        elif issubclass(cls, Backprop) and options.backprop_in_place:
            able = components.column("backprop_in_place", group.column("component"))
            pair = group.column("out_deriv"), group.column("in_deriv")
            for value in (group.column("in_value"), group.column("out_value")):
                able &= (value != pair[0]) & (value != pair[1])
            found.append(Merges(group.positions, *pair).where(able))
    positions, s1, s2 = (np.concatenate(columns) for columns in zip(*found, strict=True))
    order = positions.argsort()
    merges = Merges(positions[order], s1[order], s2[order])
    return merges.where((merges.s1 != 0) & (merges.s2 != 0))


class Conditions(NamedTuple):
    """Flags (merges,): which conditions for a legal merge hold, except the order of accesses.

    A left merge makes submatrix s2's matrix part of s1, a right merge s1's of s2 (see Merges).

        c1: the matrices are not both inputs, nor both outputs, of the program
        c2: if either is an input or output, s1 and s2 are both whole matrices
        c3, c6 (left): s2 is whole; s1, too, where s2's matrix needs rows without padding
        c4, c7 (right): s1 is whole; s2, too, where s1's matrix needs rows without padding

    Condition c5, that neither matrix has been merged in this round, is checked by _Round.
    """

    c1: BoolArray
    c2: BoolArray
    c3: BoolArray
    c4: BoolArray
    c6: BoolArray
    c7: BoolArray

    @property
    def left(self) -> BoolArray:
        """(merges,) whether the conditions allow s2's matrix to become a part of s1."""
        return self.c1 & self.c2 & self.c3 & self.c6

    @property
    def right(self) -> BoolArray:
        """(merges,) whether each may make s1's matrix a part of submatrix s2 (right merge)."""
        return self.c1 & self.c2 & self.c4 & self.c7


def merge_conditions(analysis: Analysis, merges: Merges) -> Conditions:
    """The conditions for a legal merge, except the order of accesses, that each merge meets."""
    variables, matrices = analysis.variables, analysis.computation.matrices
    m1, m2 = variables.matrix_of_submatrix[merges.s1], variables.matrix_of_submatrix[merges.s2]
    is_input, is_output = analysis.lifetimes.is_input, analysis.lifetimes.is_output
    whole1, whole2 = variables.is_whole[merges.s1], variables.is_whole[merges.s2]
    for_user = is_input[m1] | is_input[m2] | is_output[m1] | is_output[m2]
    packed = np.array([m.stride_type == StrideType.EQUAL_NUM_COLS for m in matrices], np.bool_)
    return Conditions(
        c1=~(is_input[m1] & is_input[m2]) & ~(is_output[m1] & is_output[m2]),
        c2=~for_user | (whole1 & whole2),
        c3=whole2,
        c4=whole1,
        c6=~packed[m2] | whole1,
        c7=~packed[m1] | whole2,
    )


def order_allows(times: AccessTimes, merges: Merges) -> BoolArray:
    """(merges,) whether the order of accesses lets a command's submatrices s1 and s2 share memory.

    Before the command, s2 must only be zeroed. After a copy of s1 to s2 with scale 1, s1 must not
    be written, nor read after the value in s2 is overwritten or freed. After any other command s1
    must not be accessed.
    """
    positions, s1, s2 = merges
    last = times.last_access(s1)
    fits = (times.last_write_access(s1) < positions) & (
        last < times.data_invalidated(positions, s2)
    )
    allowed = np.where(is_assignment(times.analysis)[positions], fits, last == positions)
    return allowed & (times.first_nontrivial_access(s2) == positions)


def is_assignment(analysis: Analysis) -> BoolArray:
    """(commands,) whether each command is a copy with scale 1."""
    is_copy = np.zeros(len(analysis.computation.commands), np.bool_)
    if (copies := analysis.groups.get(MatrixCopy)) is not None:
        is_copy[copies.positions] = copies.alphas() == 1.0
    return is_copy


def legal_merges(
    analysis: Analysis, merges: Merges, options: OptimizeOptions
) -> tuple[BoolArray, BoolArray]:
    """Two masks (merges,): the merges that are legal as left merge, and those as right merge.

    A left merge makes s2's matrix a part of s1, a right merge s1's matrix a part of s2.
    """
    matrix_of = analysis.variables.matrix_of_submatrix
    conditions = merge_conditions(analysis, merges)
    apart = matrix_of[merges.s1] != matrix_of[merges.s2]
    left = apart & conditions.left & options.allow_left_merge
    right = apart & conditions.right & options.allow_right_merge
    # Access times cost more than the rest; recurrent networks' last round needs none.
    legal = np.flatnonzero(left | right)
    if len(legal):
        wrong = legal[~order_allows(AccessTimes(analysis), merges.where(legal))]
        left[wrong] = right[wrong] = False
    return left, right


class _Round:
    """One sweep of merges over the commands of a program, with one analysis."""

    def __init__(self, computation: Computation, context: PassContext) -> None:
        # Merging changes the copy; the analysis refers to the original program.
        self.computation = computation.copy()
        self.analysis = context.analyst.analyze(computation)
        self.context = context
        self.table = self.computation.submatrix_table()
        """The table of submatrices after `run`; `computation` keeps the submatrices before it."""
        lifetimes = self.analysis.lifetimes
        self._matrix_of = self.analysis.variables.matrix_of_submatrix.tolist()
        self._allocate = lifetimes.allocate_command.tolist()
        self._free = lifetimes.deallocate_command.tolist()
        self._first_access = self.analysis.matrix_accesses.first(-1).tolist()

    def run(self) -> bool:
        """Do every legal merge in `self.computation`; returns whether there was one."""
        merges = opportunities(self.analysis, self.context)
        left, right = legal_merges(self.analysis, merges, self.context.options)
        legal = left | right
        assignment = is_assignment(self.analysis)[merges.positions[legal]]
        merged: list[tuple[int, int]] = []
        for (position, keep, discard), is_copy in zip(
            self._distinct(merges.where(legal), left[legal]), assignment.tolist(), strict=True
        ):
            if keep:
                merged.append((keep, discard))
                self._join_lifetimes(self._matrix_of[keep], self._matrix_of[discard])
                if is_copy:
                    self.computation.commands[position] = NoOperation()
        if merged:
            self._move_submatrices(*np.array(merged).T)
        return bool(merged)

    def _distinct(self, merges: Merges, left: BoolArray) -> Iterator[tuple[int, int, int]]:
        """Yield (number of the command, submatrix that stays, submatrix that goes) of each merge.

        A merge has two submatrices, s1 and s2; `left` (merges,) says where s1 stays. A merge of
        elements that were merged in this round waits for the next round: it is (number, 0, 0).
        """
        variables, offsets = (a.tolist() for a in self.analysis.variables.all_of_submatrices)
        dirty = bytearray(self.analysis.variables.num_variables)
        for position, s1, s2, is_left in zip(
            *(column.tolist() for column in merges), left.tolist(), strict=True
        ):
            touched = variables[offsets[s1] : offsets[s1 + 1]]
            touched += variables[offsets[s2] : offsets[s2 + 1]]
            if any(map(dirty.__getitem__, touched)):
                yield position, 0, 0
                continue
            for variable in touched:
                dirty[variable] = 1
            yield (position, s1, s2) if is_left else (position, s2, s1)

    def _move_submatrices(self, keep: Ints, discard: Ints) -> None:
        """Make each submatrix of a discarded matrix a submatrix of the matrix that is kept.

        The matrix of submatrix discard[i] becomes submatrix keep[i] of another matrix. In
        one round no matrix is discarded twice, or both discarded and kept.
        """
        table, matrices = self.table, self.computation.matrices
        keep_of = np.zeros(len(matrices), np.int64)
        keep_of[table[discard, 0]] = keep
        if self.context.origins is not None:
            self.context.origins.merge(keep, table[discard, 0])
        moved = np.flatnonzero(keep_of[table[:, 0]])
        of_kept = table[keep_of[table[moved, 0]]]
        for m_keep, m_discard in zip(
            table[keep, 0].tolist(), table[discard, 0].tolist(), strict=True
        ):
            if matrices[m_discard].stride_type == StrideType.EQUAL_NUM_COLS:
                matrices[m_keep] = matrices[m_keep]._replace(stride_type=StrideType.EQUAL_NUM_COLS)
        table[moved, 0] = of_kept[:, 0]
        table[moved, 1] += of_kept[:, 1]
        table[moved, 3] += of_kept[:, 3]

    def _join_lifetimes(self, m_keep: int, m_discard: int) -> None:
        """Remove all but one allocation and one deallocation of two matrices that are merged."""
        before, commands = self.analysis.computation.commands, self.computation.commands
        free_keep, free_discard = self._free[m_keep], self._free[m_discard]
        if max(free_keep, free_discard) == -1:
            raise ProgramError(f"m{m_keep} and m{m_discard} are merged but neither is ever freed")
        # The matrix that is an output has none; the other's must go then.
        commands[free_discard if free_discard != -1 else free_keep] = NoOperation()
        # An AcceptInput must not move, so the allocation of the other matrix is removed.
        allocate = self._allocate[m_discard]
        dropped = m_keep if isinstance(commands[allocate], AcceptInput) else m_discard
        commands[self._allocate[dropped]] = NoOperation()
        first = self._first_access[dropped]
        if is_zeroing(before[first]):
            commands[first] = NoOperation()
