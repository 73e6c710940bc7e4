"""Removal of epsilon arcs from compact lattices, with OpenFst's order of arcs."""

from __future__ import annotations

import heapq

import numpy as np

from nnet3tools.fst.depth_first import top_order
from nnet3tools.fst.lattice import CompactLattice, FinalWeight
from nnet3tools.fst.weights import single

_ONE: FinalWeight = (0.0, 0.0, ())

_SHORTEST_DELTA = single(1e-6)
"""A detour must shorten a distance by more than this to count (OpenFst's kShortestDelta)."""


def better_weight(one: FinalWeight | None, other: FinalWeight) -> FinalWeight:
    """The better of two weights, as Kaldi's Plus: least total cost, then least graph cost.

    For equal costs: the shorter sequence of transition ids, then the one with greater ids.
    """
    return other if one is None or _rank(other) < _rank(one) else one


def _rank(weight: FinalWeight) -> tuple[float, float, int, tuple[int, ...]]:
    graph, acoustic, ids = weight
    return single(graph + acoustic), graph, len(ids), tuple(-i for i in ids)


def _are_close(one: FinalWeight, other: FinalWeight) -> bool:
    """Whether OpenFst treats two path weights as equal (within its tolerance)."""
    totals = single(one[0] + one[1]), single(other[0] + other[1])
    return one[2] == other[2] and single(abs(totals[0] - totals[1])) <= _SHORTEST_DELTA


def _times(one: FinalWeight, other: FinalWeight) -> FinalWeight:
    return single(one[0] + other[0]), single(one[1] + other[1]), one[2] + other[2]


def lattice_without_epsilons(lattice: CompactLattice) -> CompactLattice:
    """An equivalent connected lattice without arcs that have no word (RmEpsilon).

    The transition ids of a removed arc are put before those of the following arcs. States keep
    their order. Each state's arcs are reversed; of arcs with equal word and next state the better
    one stays. DataError if the lattice has a cycle.
    """
    if not lattice.fst.num_states:
        return lattice
    return _EpsilonRemoval(lattice).result()


class _EpsilonRemoval:
    """Removes epsilon arcs from states in reverse topological order, so next states have none."""

    def __init__(self, lattice: CompactLattice) -> None:
        self._start = lattice.fst.start
        self._arcs, self._finals = lattice.arc_lists(), lattice.final_list()
        self._order = top_order(lattice.fst)
        self._places = np.argsort(self._order).tolist()

    def result(self) -> CompactLattice:
        """The lattice without epsilons and without states that only epsilons entered."""
        kept = {self._start} | {arc[4] for arcs in self._arcs for arc in arcs if arc[0]}
        for state in reversed(self._order):
            if state in kept:
                self._expand(state)
        arcs = [of_state if s in kept else [] for s, of_state in enumerate(self._arcs)]
        return CompactLattice.from_lists(self._start, self._finals, arcs).connected()

    def _distances(self, source: int) -> dict[int, FinalWeight]:
        """The best weight of a path of epsilons from `source` to each state that has one."""
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
