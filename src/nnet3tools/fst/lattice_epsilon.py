"""Removing epsilon arcs of compact lattices, with the order of arcs that OpenFst gives."""

from __future__ import annotations

import heapq

import numpy as np

from nnet3tools.fst.connect import accessible, coaccessible
from nnet3tools.fst.depth_first import top_order
from nnet3tools.fst.lattice import CompactArc, CompactLattice, FinalWeight
from nnet3tools.fst.weights import single

__all__ = ["better_weight", "connected_lattice", "lattice_without_epsilons"]

_ONE: FinalWeight = (0.0, 0.0, ())

_SHORTEST_DELTA = single(1e-6)
"""Distances that a detour would shorten by no more stay as they are (OpenFst's kShortestDelta)."""


def better_weight(one: FinalWeight | None, other: FinalWeight) -> FinalWeight:
    """The weight that Kaldi's Plus keeps: of the least total cost, then of the least graph cost.

    Of equal costs the shorter sequence of transition ids stays, then the one with greater ids.
    """
    return other if one is None or _rank(other) < _rank(one) else one


def _rank(weight: FinalWeight) -> tuple[float, float, int, tuple[int, ...]]:
    graph, acoustic, ids = weight
    return single(graph + acoustic), graph, len(ids), tuple(-i for i in ids)


def _are_close(one: FinalWeight, other: FinalWeight) -> bool:
    """Whether OpenFst takes a way for no shorter than another."""
    totals = single(one[0] + one[1]), single(other[0] + other[1])
    return one[2] == other[2] and single(abs(totals[0] - totals[1])) <= _SHORTEST_DELTA


def _times(one: FinalWeight, other: FinalWeight) -> FinalWeight:
    return single(one[0] + other[0]), single(one[1] + other[1]), one[2] + other[2]


def lattice_without_epsilons(lattice: CompactLattice) -> CompactLattice:
    """An equivalent lattice without arcs that have no word, connected (RmEpsilon).

    An arc's transition ids go before those of the arcs that follow it. States keep their order;
    each state's arcs come out in reverse order, those with the same word and next state as the
    better one. DataError if the lattice has a cycle.
    """
    if not lattice.fst.num_states:
        return lattice
    return _EpsilonRemoval(lattice).result()


class _EpsilonRemoval:
    """Expands states from the last to the first, so that those reached have no epsilons left."""

    def __init__(self, lattice: CompactLattice) -> None:
        self._start = lattice.fst.start
        self._arcs, self._finals = lattice.arc_lists(), lattice.final_list()
        self._order = top_order(self._start, [[a[4] for a in arcs] for arcs in self._arcs])
        self._places = np.argsort(self._order).tolist()

    def result(self) -> CompactLattice:
        """States that only epsilons lead to are not needed any more."""
        kept = {self._start} | {arc[4] for arcs in self._arcs for arc in arcs if arc[0]}
        for state in reversed(self._order):
            if state in kept:
                self._expand(state)
        arcs = [of_state if s in kept else [] for s, of_state in enumerate(self._arcs)]
        return connected_lattice(CompactLattice.from_lists(self._start, self._finals, arcs))

    def _distances(self, source: int) -> dict[int, FinalWeight]:
        """The best weight of epsilons to every state they lead to."""
        distances = {source: _ONE}
        waiting = [self._places[source]]
        while waiting:
            state = self._order[heapq.heappop(waiting)]
            for word, *weight, target in self._arcs[state]:
                if word:
                    continue
                if target not in distances:
                    heapq.heappush(waiting, self._places[target])
                graph, acoustic, ids = weight
                reached = _times(distances[state], (graph, acoustic, ids))
                old = distances.get(target)
                best = better_weight(old, reached)
                if old is None or not _are_close(old, best):
                    distances[target] = best
        return distances

    def _expand(self, source: int) -> None:
        distances, stack, seen = self._distances(source), [source], set[int]()
        final: FinalWeight | None = None
        found: dict[tuple[int, int], FinalWeight] = {}
        while stack:
            state = stack.pop()
            if state in seen:
                continue
            seen.add(state)
            for word, graph, acoustic, ids, target in self._arcs[state]:
                if word:
                    weight = _times(distances[state], (graph, acoustic, ids))
                    found[word, target] = better_weight(found.get((word, target)), weight)
                elif target not in seen:
                    stack.append(target)
            if (here := self._finals[state]) is not None:
                final = better_weight(final, _times(distances[state], here))
        self._arcs[source] = [
            (word, *weight, target) for (word, target), weight in reversed(found.items())
        ]
        self._finals[source] = final


def connected_lattice(lattice: CompactLattice) -> CompactLattice:
    """Only the states on some path from the start to a final state, in the order they have."""
    fst = lattice.fst
    if not fst.num_states:
        return lattice
    keep = accessible(fst) & coaccessible(fst)
    if keep.all():
        return lattice
    if not keep[fst.start]:
        return CompactLattice.empty()
    numbers = (np.cumsum(keep) - 1).tolist()
    arcs, finals = lattice.arc_lists(), lattice.final_list()
    kept = np.flatnonzero(keep).tolist()
    new_arcs: list[list[CompactArc]] = [
        [(*arc[:4], numbers[arc[4]]) for arc in arcs[state] if keep[arc[4]]] for state in kept
    ]
    return CompactLattice.from_lists(numbers[fst.start], [finals[s] for s in kept], new_arcs)
