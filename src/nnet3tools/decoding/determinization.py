"""Determinization of lattices with pruning: one path for each word sequence within a beam.

The algorithm is that of D. Povey et al., "Generating exact lattices in the WFST framework" (ICASSP
2012), with the pruning of Kaldi's DeterminizeLatticePruned: subsets of states are expanded in the
order of the best path through them, until none is within the beam. This is the reference for
native/determinize.c, which does the work where there is a C compiler.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import NamedTuple

from nnet3tools.decoding.labelled_lattice import LabelledLattice
from nnet3tools.decoding.native.lattices import determinized_by
from nnet3tools.decoding.native.library import decoding_library
from nnet3tools.fst.lattice import CompactArc, FinalWeight

__all__ = ["Determinizer", "determinized"]

Weight = tuple[float, float]
"""Total and graph cost; they compare as Kaldi's lattice weights do."""

_Ids = tuple[int, ...]

_Element = tuple[float, float, _Ids]
"""Total cost, graph cost, transition ids.

Sequences are tuples, though they share much: with a tree of shared ones nnet3-latgen-faster took
1.25 times as long on AN4's test set (17.6 against 14.3 user seconds, lattice beam 8).
"""

_Subset = dict[int, _Element]
"""States of the input, each with its best element."""

_ONE: Weight = (0.0, 0.0)


@dataclass
class _OutputState:
    """A subset of input states, in the minimal form, and the arcs found so far."""

    subset: _Subset
    forward_cost: float
    arcs: list[CompactArc] = field(default_factory=list)
    final: FinalWeight | None = None


class _Task(NamedTuple):
    """An arc to be made: from an output state, with a label, to a subset that is not normalized.

    Tasks are compared by cost alone. Of equal ones heapq takes the same first as C++'s
    priority_queue does, so that states have Kaldi's numbers.
    """

    cost: float
    state: int
    label: int
    subset: _Subset

    def __lt__(self, other: tuple) -> bool:
        return self[0] < other[0]


_ARC_BYTES, _ELEMENT_BYTES, _ID_BYTES = 32, 24, 48
"""What Kaldi counts for an arc, an element of a subset, and an id of its sequences."""


def determinized(
    lattice: LabelledLattice, beam: float, delta: float, max_memory: int
) -> tuple[LabelledLattice, float]:
    """The lattice, whose states must be in topological order, made deterministic on its labels.

    Also the beam that was reached before `max_memory` bytes (0 for any) were used up. `delta` is
    how much weights of equal subsets may differ.
    """
    if (library := decoding_library()) is not None:
        return determinized_by(library, lattice, beam, delta, max_memory)
    determinizer = Determinizer(lattice, beam, delta, max_memory)
    reached = determinizer.run()
    return determinizer.result(), reached


class Determinizer:
    """Determinizes one lattice on its labels, in Python."""

    def __init__(
        self, lattice: LabelledLattice, beam: float, delta: float, max_memory: int
    ) -> None:
        """`delta` is how much weights of equal subsets may differ; `max_memory` in bytes, or 0."""
        self._delta, self._max_memory = delta, max_memory
        arc_lists, self._finals = lattice.arc_lists(), lattice.final_list()
        self._backward = lattice.backward_costs()
        self._best = self._backward[0] if self._backward else math.inf
        self._beam, self._cutoff = beam, self._best + beam
        self._epsilon = [[arc for arc in arcs if not arc[0]] for arcs in arc_lists]
        self._labelled = [[arc for arc in arcs if arc[0]] for arcs in arc_lists]
        self._states: list[_OutputState] = []
        self._minimal: dict[tuple, list[int]] = {}
        self._initial: dict[tuple, list[tuple[_Subset, int, _Element]]] = {}
        self._queue: list[_Task] = []
        self._num_arcs = self._num_elements = self._num_ids = 0

    def run(self) -> float:
        """Determinize; the beam that was reached before memory ran out."""
        if not self._backward or math.isinf(self._best):
            return self._beam
        start = self._minimal_form(self._closure({0: (0.0, 0.0, ())}))
        self._state_of_minimal(start, 0.0)
        while self._queue:
            if len(self._states) % 10 == 0 and self._is_out_of_memory():
                return self._queue[0].cost - self._best
            self._do(heapq.heappop(self._queue))
        return self._beam

    def result(self) -> LabelledLattice:
        """The deterministic lattice; its states need not be in topological order."""
        return LabelledLattice.from_lists(
            [state.arcs for state in self._states], [state.final for state in self._states]
        )

    def _is_out_of_memory(self) -> bool:
        used = (
            _ARC_BYTES * self._num_arcs
            + _ELEMENT_BYTES * self._num_elements
            + _ID_BYTES * self._num_ids
        )
        return 0 < self._max_memory < used

    # -- subsets

    def _closure(self, subset: _Subset) -> _Subset:
        """With the states that arcs without labels lead to (states are in topological order)."""
        closed = dict(subset)
        queue = [state for state in subset if self._epsilon[state]]
        heapq.heapify(queue)
        while queue:
            state = heapq.heappop(queue)
            for arc in self._epsilon[state]:
                target = arc[4]
                element = self._followed(closed[state], arc, closed.get(target))
                if element is not None:
                    if target not in closed and self._epsilon[target]:
                        heapq.heappush(queue, target)
                    closed[target] = element
        return closed

    @staticmethod
    def _followed(element: _Element, arc: CompactArc, other: _Element | None) -> _Element | None:
        """The element that an arc makes; None if the other one is as good."""
        total, graph = element[0] + (arc[1] + arc[2]), element[1] + arc[1]
        if other is None:
            return total, graph, element[2] + arc[3]
        if total > other[0]:
            return None
        ids = element[2] + arc[3]
        if total < other[0] or graph < other[1]:
            return total, graph, ids
        if graph == other[1] and (-len(ids), ids) > (-len(other[2]), other[2]):
            return total, graph, ids
        return None

    def _minimal_form(self, subset: _Subset) -> _Subset:
        """Only the states that are final or have arcs with labels, in order."""
        labelled, finals = self._labelled, self._finals
        return {
            state: subset[state]
            for state in sorted(subset)
            if labelled[state] or finals[state] is not None
        }

    @staticmethod
    def _normalized(subset: _Subset) -> tuple[_Subset, _Element]:
        """Without the best weight and the common beginning of all, and these two."""
        total, graph, ids = min(subset.values())
        if len(subset) == 1:
            return dict.fromkeys(subset, (0.0, 0.0, ())), (total, graph, ids)
        sequences = [element[2] for element in subset.values()]
        prefix = _common_prefix(min(sequences), max(sequences))
        size = len(prefix)
        rest = {state: (t - total, g - graph, ids[size:]) for state, (t, g, ids) in subset.items()}
        return rest, (total, graph, prefix)

    def _is_equal(self, one: _Subset, other: _Subset) -> bool:
        """Whether subsets of equal states and sequences have nearly equal weights."""
        pairs = zip(one.values(), other.values(), strict=True)
        return all(abs(a[0] - b[0]) <= self._delta for a, b in pairs)

    # -- output states

    def _state_of_initial(self, subset: _Subset, forward_cost: float) -> tuple[int, _Element]:
        """The output state of a normalized subset before closure, and what its weight leaves."""
        known = self._initial.setdefault(_key(subset), [])
        for other, state, rest in known:
            if self._is_equal(subset, other):
                return state, rest
        minimal, rest = self._normalized(self._minimal_form(self._closure(subset)))
        state = self._state_of_minimal(minimal, forward_cost + rest[0])
        known.append((subset, state, rest))
        self._num_elements += len(subset)
        return state, rest

    def _state_of_minimal(self, subset: _Subset, forward_cost: float) -> int:
        known = self._minimal.setdefault(_key(subset), [])
        for number in known:
            if self._is_equal(subset, self._states[number].subset):
                return number
        state = _OutputState(subset, forward_cost)
        known.append(len(self._states))
        self._states.append(state)
        self._num_elements += len(subset)
        self._set_final(state)
        self._plan_arcs(len(self._states) - 1)
        return len(self._states) - 1

    def _set_final(self, state: _OutputState) -> None:
        """The best final weight of the subset, if it is within the beam."""
        best: _Element | None = None
        for member, element in state.subset.items():
            final = self._finals[member]
            if final is not None:
                arc = (0, final[0], final[1], final[2], 0)
                best = self._followed(element, arc, best) or best
        if best is not None and best[0] + state.forward_cost <= self._cutoff:
            total, graph, ids = best
            state.final = (graph, total - graph, ids)
            self._num_arcs += 1

    def _plan_arcs(self, number: int) -> None:
        """Queue a task for each label that leaves the subset, if a path is within the beam."""
        by_label: dict[int, _Subset] = {}
        state = self._states[number]
        for member, element in state.subset.items():
            for arc in self._labelled[member]:
                subset = by_label.setdefault(arc[0], {})
                followed = self._followed(element, arc, subset.get(arc[4]))
                if followed is not None:
                    subset[arc[4]] = followed
        for label in sorted(by_label):
            subset = by_label[label]
            cost = min(total + self._backward[s] for s, (total, _, _) in subset.items())
            cost += state.forward_cost
            if cost <= self._cutoff:
                ordered = {member: subset[member] for member in sorted(subset)}
                heapq.heappush(self._queue, _Task(cost, number, label, ordered))

    def _do(self, task: _Task) -> None:
        """Make the arc of a task, and the state that it leads to if there is none yet."""
        state = self._states[task.state]
        subset, (total, graph, ids) = self._normalized(task.subset)
        target, rest = self._state_of_initial(subset, state.forward_cost + total)
        total, graph = total + rest[0], graph + rest[1]
        ids += rest[2]
        state.arcs.append((task.label, graph, total - graph, ids, target))
        self._num_arcs += 1
        self._num_ids += len(ids)


def _key(subset: _Subset) -> tuple:
    """States and sequences of a subset."""
    return tuple((state, element[2]) for state, element in subset.items())


def _common_prefix(first: _Ids, last: _Ids) -> _Ids:
    """What both begin with, and so all sequences between them in order."""
    for place, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return first[:place]
    return first
