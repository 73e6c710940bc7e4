"""Removal of epsilons where it does not enlarge an FST (Kaldi's RemoveEpsLocal)."""

from __future__ import annotations

from collections.abc import Callable

from nnet3tools.fst.connect import connect
from nnet3tools.fst.fst import NOT_FINAL, ArcTuple, Fst
from nnet3tools.fst.weights import log_sum, single

_DELETED = -1
"""Next state of a deleted arc, which keeps its place in the state's list."""


def remove_epsilons_locally(fst: Fst, stochastic_in_log: bool = False) -> Fst:
    """An equivalent connected FST with at most as many epsilons.

    Two successive arcs are joined if at most one reads and at most one writes a label, and the
    state between them has one arc in or one arc out (a final weight counts as an arc out). Weights
    are moved so that each state keeps the least weight of its outgoing arcs or, with
    `stochastic_in_log`, their total probability (RemoveEpsLocalSpecial).
    """
    fst = connect(fst)  # the loop below would not end on a cycle of epsilons without exit
    if not fst.num_states:
        return fst
    work = _Work(fst, log_sum if stochastic_in_log else min)
    for state in range(fst.num_states):
        position = 0
        while position < len(work.arcs[state]):  # grows during the loop
            work.join(state, position)
            position += 1
    arcs = [[arc for arc in of_state if arc[3] != _DELETED] for of_state in work.arcs]
    return connect(Fst.from_lists(fst.start, work.finals, arcs))


def _combined(first: ArcTuple, second: ArcTuple) -> ArcTuple | None:
    """Join two successive arcs into one; None if both read or both write a label."""
    if (first[0] and second[0]) or (first[1] and second[1]):
        return None
    return (first[0] or second[0], first[1] or second[1], single(first[2] + second[2]), second[3])


class _Work:
    """An FST whose arcs are joined in place, with each state's numbers of arcs in and out."""

    def __init__(self, fst: Fst, plus: Callable[[float, float], float]) -> None:
        self._plus = plus
        self.arcs = fst.arc_lists()
        self.finals = fst.finals.tolist()
        self.num_in = [0] * fst.num_states
        self.num_in[fst.start] = 1
        for target in fst.nextstates.tolist():
            self.num_in[target] += 1
        self.num_out = [
            len(arcs) + (final != NOT_FINAL)
            for arcs, final in zip(self.arcs, self.finals, strict=True)
        ]

    def join(self, state: int, position: int) -> None:
        """Join the arc at `position` of `state`, in place, with the arcs that leave its target.

        Labels must allow it, and either only this arc enter the target or only one leave it.
        """
        arc = self.arcs[state][position]
        between = arc[3]
        if between in (_DELETED, state):
            return
        if self.num_in[between] == 1 and self.num_out[between] > 1:
            self._join_with_many(state, position, arc)
        elif self.num_out[between] == 1:
            self._join_with_one(state, position, arc)

    def _add(self, state: int, arc: ArcTuple) -> None:
        self.num_out[state] += 1
        self.num_in[arc[3]] += 1
        self.arcs[state].append(arc)

    def _delete(self, state: int, position: int) -> None:
        arc = self.arcs[state][position]
        self.num_out[state] -= 1
        self.num_in[arc[3]] -= 1
        self.arcs[state][position] = (*arc[:3], _DELETED)

    def _join_final(self, state: int, arc: ArcTuple) -> bool:
        """Add the final weight after an epsilon arc to `state`; False if the arc has labels."""
        if arc[0] or arc[1]:
            return False
        was_final = self.finals[state] != NOT_FINAL
        final = single(arc[2] + self.finals[arc[3]])
        self.finals[state] = min(self.finals[state], final)
        # An overflowing sum does not make the state final.
        self.num_out[state] += not was_final and self.finals[state] != NOT_FINAL
        return True

    def _take_final(self, state: int) -> None:
        self.num_out[state] -= 1
        self.finals[state] = NOT_FINAL

    def _join_with_many(self, state: int, position: int, arc: ArcTuple) -> None:
        """Join an arc, the only one into its next state, with each arc that leaves this state.

        It is arc number `position` of `state`. Arcs that both read, or write, a label stay apart.
        """
        between = arc[3]
        removed = kept = NOT_FINAL
        added: list[ArcTuple] = []
        for place, after in enumerate(self.arcs[between]):
            if after[3] == _DELETED:
                continue
            if (joined := _combined(arc, after)) is None:
                kept = self._plus(kept, after[2])
                continue
            removed = self._plus(removed, after[2])
            self._delete(between, place)
            added.append(joined)
        if (final := self.finals[between]) != NOT_FINAL:
            if self._join_final(state, arc):
                removed = self._plus(removed, final)
                self._take_final(between)
            else:
                kept = self._plus(kept, final)
        if removed != NOT_FINAL:
            if kept == NOT_FINAL:
                self._delete(state, position)
            else:
                self._reweight(state, position, single(kept - self._plus(removed, kept)))
        for joined in added:
            self._add(state, joined)

    def _reweight(self, state: int, position: int, weight: float) -> None:
        """Add `weight` to arc `position`, subtract it from its target's arcs and final weight."""
        ilabel, olabel, before, between = self.arcs[state][position]
        self.arcs[state][position] = (ilabel, olabel, single(before + weight), between)
        self.arcs[between] = [
            (i, o, single(w - weight) if target != _DELETED else w, target)
            for i, o, w, target in self.arcs[between]
        ]
        if self.finals[between] != NOT_FINAL:
            self.finals[between] = single(self.finals[between] - weight)

    def _join_with_one(self, state: int, position: int, arc: ArcTuple) -> None:
        """Join arc number `position` of `state` with the only arc, or final weight, of its target.

        The joined arc replaces the arc. That of the target is deleted if no other arc enters it.
        """
        between = arc[3]
        last_way_in = self.num_in[between] == 1
        if self.finals[between] != NOT_FINAL:
            if not self._join_final(state, arc):
                return
            if last_way_in:
                self._take_final(between)
        else:
            place = next(i for i, a in enumerate(self.arcs[between]) if a[3] != _DELETED)
            if (joined := _combined(arc, self.arcs[between][place])) is None:
                return
            if last_way_in:
                self._delete(between, place)
            self._add(state, joined)
        self._delete(state, position)
