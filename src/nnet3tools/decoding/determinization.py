"""Determinization of lattices with pruning: one path for each word sequence within a beam.

The algorithm is that of D. Povey et al., "Generating exact lattices in the WFST framework" (ICASSP
2012), with the pruning of Kaldi's DeterminizeLatticePruned: subsets of states are expanded in the
order of the best path through them, until none is within the beam. With a C compiler,
native/determinize.c does the work; this module is its reference.
"""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

import numpy as np

from nnet3tools.decoding.native.lattices import determinized_by
from nnet3tools.decoding.native.library import decoding_library
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.fst.lattice import CompactArc, CompactLattice, FinalWeight

_Ids = tuple[int, ...]

_Single = np.float32
"""Weights are summed in single precision as in Kaldi, so that the same paths are equal."""

_Element = tuple[np.float32, np.float32, _Ids]
"""Graph cost, acoustic cost, transition ids.

Sequences are tuples without sharing. With a tree of shared sequences nnet3-latgen-faster took 1.25
times as long on AN4's test set (17.6 against 14.3 user seconds, lattice beam 8).
"""

_Arc = tuple[int, np.float32, np.float32, _Ids, int]
"""Label, graph cost, acoustic cost, transition ids, next state."""

_Subset = dict[int, _Element]
"""Input states, each with its best element."""

_ONE: _Element = (_Single(0.0), _Single(0.0), ())


@dataclass
class _OutputState:
    """An output state: the input states it stands for, and the output arcs created so far.

    `subset` has their costs and ids minus the best cost and the common ids. `forward_cost` is the
    cost of the best path to the state, `final` its final weight if it is final.
    """

    subset: _Subset
    forward_cost: float
    arcs: list[CompactArc] = field(default_factory=list)
    final: FinalWeight | None = None


class _Task(NamedTuple):
    """An output arc to create: its source state, its label, and the subset of its next state.

    Tasks are compared by `cost`, that of the best path through the arc. heapq pops equal tasks in
    the same order as C++'s priority_queue, so states get Kaldi's numbers.
    """

    cost: float
    state: int
    label: int
    subset: _Subset

    def __lt__(self, other: tuple) -> bool:
        return self[0] < other[0]


_ARC_BYTES, _ELEMENT_BYTES, _ID_BYTES = 32, 24, 48
"""Memory that Kaldi assumes for an arc, an element of a subset, and an id of a sequence."""


def determinized(
    lattice: CompactLattice, beam: float, delta: float, max_memory: int
) -> tuple[CompactLattice, float]:
    """(lattice that is deterministic on its labels, beam that was reached).

    The input's states must be in topological order. `delta` is the tolerance between weights of
    equal subsets. The beam reached is smaller than `beam` if `max_memory` bytes were used up (0: no
    limit).
    """
    if (library := decoding_library()) is not None:
        return determinized_by(library, lattice, beam, delta, max_memory)
    determinizer = Determinizer(lattice, beam, delta, max_memory)
    reached = determinizer.run()
    return determinizer.result(), reached


class Determinizer:
    """Determinizes one lattice on its labels, in Python: call `run`, then `result`."""

    def __init__(self, lattice: CompactLattice, beam: float, delta: float, max_memory: int) -> None:
        """Prepare to determinize `lattice` within `beam` of its best path.

        `delta`: tolerance between equal subsets' weights; `max_memory`: bytes (0: no limit).
        """
        self._delta, self._max_memory = _Single(delta), max_memory
        arc_lists = [[_single(arc) for arc in arcs] for arcs in lattice.arc_lists()]
        self._finals = [
            None if final is None else (0, _Single(final[0]), _Single(final[1]), final[2], 0)
            for final in lattice.final_list()
        ]
        self._backward = lattice.costs_to_end(range(lattice.fst.num_states))
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
        """Determinize, and return the beam that was reached before memory ran out."""
        if not self._backward or math.isinf(self._best):
            return self._beam
        start = self._minimal_form(self._closure({0: _ONE}))
        self._state_of_minimal(start, 0.0)
        while self._queue:
            if len(self._states) % 10 == 0 and self._is_out_of_memory():
                return self._queue[0].cost - self._best
            self._do(heapq.heappop(self._queue))
        return self._beam

    def result(self) -> CompactLattice:
        """The deterministic lattice; its states need not be in topological order."""
        return CompactLattice.from_lists(
            0, [state.final for state in self._states], [state.arcs for state in self._states]
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
        """The subset, extended by all states that arcs without labels reach from its states."""
        closed = dict(subset)
        queue = [state for state in subset if self._epsilon[state]]
        heapq.heapify(queue)
        while queue:
            state = heapq.heappop(queue)
            for arc in self._epsilon[state]:
                target = arc[4]
                if (element := self._followed(closed[state], arc, closed.get(target))) is not None:
                    if target not in closed and self._epsilon[target]:
                        heapq.heappush(queue, target)
                    closed[target] = element
        return closed

    @staticmethod
    def _followed(element: _Element, arc: _Arc, other: _Element | None) -> _Element | None:
        """The path `element` extended by `arc`; None if `other`, to the same state, is better."""
        graph, acoustic = element[0] + arc[1], element[1] + arc[2]
        if other is None:
            return graph, acoustic, element[2] + arc[3]
        comparison = _compare(graph, acoustic, other)
        if comparison < 0:
            return None
        ids = element[2] + arc[3]
        if comparison > 0 or (-len(ids), ids) > (-len(other[2]), other[2]):
            return graph, acoustic, ids
        return None

    def _minimal_form(self, subset: _Subset) -> _Subset:
        """The part of a subset whose states are final or have arcs with labels, by state number."""
        labelled, finals = self._labelled, self._finals
        return {
            state: subset[state]
            for state in sorted(subset)
            if labelled[state] or finals[state] is not None
        }

    @staticmethod
    def _normalized(subset: _Subset) -> tuple[_Subset, _Element]:
        """(subset without its best costs and common ids, (graph and acoustic cost, common ids))."""
        elements = list(subset.values())
        graph, acoustic, prefix = elements[0]
        for other in elements[1:]:
            if _compare(other[0], other[1], (graph, acoustic, ())) > 0:
                graph, acoustic, _ = other
            prefix = common_prefix(prefix, other[2])
        size = len(prefix)
        rest = {
            state: (g - graph, a - acoustic, ids[size:]) for state, (g, a, ids) in subset.items()
        }
        return rest, (graph, acoustic, prefix)

    def _is_equal(self, one: _Subset, other: _Subset) -> bool:
        """Whether weights of subsets with equal states and ids differ by at most `delta`."""
        pairs = zip(one.values(), other.values(), strict=True)
        return all(
            a[:2] == b[:2] or abs((a[0] + a[1]) - (b[0] + b[1])) <= self._delta for a, b in pairs
        )

    # -- output states

    def _state_of_initial(self, subset: _Subset, forward_cost: float) -> tuple[int, _Element]:
        """(output state of a normalized subset after epsilon closure, weight for the arc to it).

        Normalizing the closure gives this weight. `forward_cost`: of the best path to the subset.
        """
        known = self._initial.setdefault(_key(subset), [])
        for other, state, rest in reversed(known):
            if self._is_equal(subset, other):
                return state, rest
        minimal, rest = self._normalized(self._minimal_form(self._closure(subset)))
        state = self._state_of_minimal(minimal, forward_cost + _cost(rest))
        known.append((subset, state, rest))
        self._num_elements += len(subset)
        return state, rest

    def _state_of_minimal(self, subset: _Subset, forward_cost: float) -> int:
        known = self._minimal.setdefault(_key(subset), [])
        for number in reversed(known):
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
        """Set the output state's final weight to the best of its subset, if within the beam."""
        best: _Element | None = None
        for member, element in state.subset.items():
            final = self._finals[member]
            if final is not None:
                best = self._followed(element, final, best) or best
        if best is not None and _cost(best) + state.forward_cost <= self._cutoff:
            state.final = (float(best[0]), float(best[1]), best[2])
            self._num_arcs += 1

    def _plan_arcs(self, number: int) -> None:
        """Queue tasks to create the arcs of output state `number`, one per label in the beam."""
        by_label: dict[int, _Subset] = {}
        costs: dict[int, float] = {}
        state = self._states[number]
        for member, element in state.subset.items():
            for arc in self._labelled[member]:
                label, target = arc[0], arc[4]
                subset = by_label.setdefault(label, {})
                whole = _cost((element[0] + arc[1], element[1] + arc[2], ()))
                costs[label] = min(costs.get(label, math.inf), whole + self._backward[target])
                if (followed := self._followed(element, arc, subset.get(target))) is not None:
                    subset[target] = followed
        for label in sorted(by_label):
            cost = costs[label] + state.forward_cost
            if cost <= self._cutoff and cost < math.inf:  # dead ends, with an infinite beam
                subset = by_label[label]
                ordered = {member: subset[member] for member in sorted(subset)}
                heapq.heappush(self._queue, _Task(cost, number, label, ordered))

    def _do(self, task: _Task) -> None:
        """Add the output arc that `task` describes, and the arc's next state if it is new."""
        state = self._states[task.state]
        subset, weight = self._normalized(task.subset)
        target, rest = self._state_of_initial(subset, state.forward_cost + _cost(weight))
        ids = weight[2] + rest[2]
        graph, acoustic = float(weight[0] + rest[0]), float(weight[1] + rest[1])
        state.arcs.append((task.label, graph, acoustic, ids, target))
        self._num_arcs += 1
        self._num_ids += len(ids)


def _key(subset: _Subset) -> tuple:
    """The states and id sequences of a subset, without weights, as a dictionary key."""
    return tuple((state, element[2]) for state, element in subset.items())


def _single(arc: CompactArc) -> _Arc:
    return (arc[0], _Single(arc[1]), _Single(arc[2]), *arc[3:])


def _cost(element: _Element) -> float:
    """The sum of graph and acoustic cost in double precision (Kaldi's ConvertToCost)."""
    return float(element[0]) + float(element[1])


def _compare(graph: np.float32, acoustic: np.float32, other: _Element) -> int:
    """1 if the weight (graph, acoustic) is better than that of `other`, -1 if worse, 0 if equal."""
    total, other_total = graph + acoustic, other[0] + other[1]
    if total != other_total:
        return 1 if total < other_total else -1
    return 0 if graph == other[0] else 1 if graph < other[0] else -1


def common_prefix(first: _Ids, other: _Ids) -> _Ids:
    """The longest sequence with which two sequences of transition ids begin."""
    for place, (one, another) in enumerate(zip(first, other, strict=False)):
        if one != another:
            return first[:place]
    return first[: len(other)]
