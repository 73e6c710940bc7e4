"""Lattices as acceptors of transition ids: reversal and determinization.

States and arcs come in OpenFst's order. An acceptor is a compact lattice with empty strings and
transition ids as labels.
"""

from __future__ import annotations

import math

import numpy as np

from nnet3tools.fst.lattice import CompactArc, CompactLattice, FinalWeight, Lattice, Strings
from nnet3tools.fst.lattice_epsilon import better_weight
from nnet3tools.fst.reverse import reversed_fst
from nnet3tools.fst.weights import single

_DELTA = 1.0 / 1024.0
"""Residual weights are rounded to multiples of this (OpenFst's kDelta)."""

_Subset = tuple[tuple[int, float, float], ...]
"""(state, residual graph cost, residual acoustic cost), sorted by state."""

_Element = tuple[int, float, float]


def as_acceptor(lattice: Lattice) -> CompactLattice:
    """The acceptor of a lattice's transition ids; words are dropped."""
    fst = lattice.fst.projected()
    strings = Strings.none(fst.num_arcs + fst.num_states)
    return CompactLattice(fst, lattice.acoustic, lattice.final_acoustic, strings)


def from_acceptor(acceptor: CompactLattice) -> Lattice:
    """The lattice whose input and output labels are the acceptor's labels."""
    return Lattice(acceptor.fst, acceptor.acoustic, acceptor.final_acoustic)


def reversed_lattice(acceptor: CompactLattice) -> CompactLattice:
    """The acceptor of the reversed sequences, with a new state 0 before the former final states.

    Epsilons with the final weights lead to the former final states. The former start is final. The
    number of each former state increases by one.
    """
    fst = reversed_fst(acceptor.fst)
    ends = np.flatnonzero(acceptor.fst.is_final)
    sources = np.concatenate([np.zeros(len(ends), np.int32), acceptor.fst.nextstates + 1])
    acoustic = np.concatenate([acceptor.final_acoustic[ends], acceptor.acoustic])
    order = np.argsort(sources, kind="stable")
    none = Strings.none(fst.num_arcs + fst.num_states)
    return CompactLattice(fst, acoustic[order], np.zeros(fst.num_states, np.float32), none)


def determinized_lattice(acceptor: CompactLattice) -> CompactLattice:
    """An equivalent acceptor without two arcs of one label from a state, sorted by label.

    The best of several paths with the same labels stays. An epsilon counts as a label. States are
    numbered in the order of discovery. The acceptor has no cycles.
    """
    if not acceptor.fst.num_states:
        return acceptor
    lists, finals = acceptor.arc_lists(), acceptor.final_list()
    subsets: list[_Subset] = [((acceptor.fst.start, 0.0, 0.0),)]
    numbers = {subsets[0]: 0}
    arcs: list[list[CompactArc]] = []
    new_finals: list[FinalWeight | None] = []
    for subset in subsets:  # which grows
        found: list[CompactArc] = []
        for label, elements in _by_label(subset, lists):
            graph, acoustic, target = _normalized(elements)
            if (number := numbers.get(target)) is None:
                number = numbers[target] = len(subsets)
                subsets.append(target)
            found.append((label, graph, acoustic, (), number))
        arcs.append(found)
        new_finals.append(_final_weight(subset, finals))
    return CompactLattice.from_lists(0, new_finals, arcs)


def _by_label(subset: _Subset, lists: list[list[CompactArc]]) -> list[tuple[int, list[_Element]]]:
    """For each label of arcs from a subset, in order: (label, next states with their costs).

    `lists` has the arcs of each state of the acceptor.
    """
    found: dict[int, list[_Element]] = {}
    for state, owed_graph, owed_acoustic in subset:
        for label, graph, acoustic, _, target in lists[state]:
            element = target, single(owed_graph + graph), single(owed_acoustic + acoustic)
            found.setdefault(label, []).append(element)
    return sorted(found.items())


def _normalized(elements: list[_Element]) -> tuple[float, float, _Subset]:
    """(graph cost, acoustic cost of the best element, elements with these costs subtracted)."""
    best: dict[int, FinalWeight] = {}
    for state, graph, acoustic in elements:
        best[state] = better_weight(best.get(state), (graph, acoustic, ()))
    least: FinalWeight | None = None
    for weight in best.values():
        least = better_weight(least, weight)
    assert least is not None
    subset = [
        (state, _quantized(single(graph - least[0])), _quantized(single(acoustic - least[1])))
        for state, (graph, acoustic, _) in sorted(best.items())
    ]
    return least[0], least[1], tuple(subset)


def _final_weight(subset: _Subset, finals: list[FinalWeight | None]) -> FinalWeight | None:
    found: FinalWeight | None = None
    for state, owed_graph, owed_acoustic in subset:
        if (final := finals[state]) is not None:
            weight = single(owed_graph + final[0]), single(owed_acoustic + final[1]), ()
            found = better_weight(found, weight)
    return found


def _quantized(cost: float) -> float:
    return math.floor(cost / _DELTA + 0.5) * _DELTA
