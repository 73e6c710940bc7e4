"""Conversion between Lattice and CompactLattice (Kaldi's ConvertLattice)."""

from __future__ import annotations

import numpy as np

from nnet3tools.fst.depth_first import depth_first, top_order
from nnet3tools.fst.fst import NO_STATE
from nnet3tools.fst.lattice import CompactArc, CompactLattice, FinalWeight, Lattice
from nnet3tools.fst.weights import single

_Arc = tuple[int, int, float, float, int]


def top_sorted(lattice: CompactLattice) -> CompactLattice:
    """The lattice with states in topological order; DataError if it has a cycle."""
    if lattice.is_top_sorted:
        return lattice
    return lattice.in_order(np.array(top_order(lattice.fst)))


def compacted(lattice: Lattice) -> CompactLattice:
    """Convert to a top-sorted CompactLattice: a chain of arcs becomes an arc with one word."""
    fst = lattice.fst
    if fst.start == NO_STATE:
        return CompactLattice.empty()
    arcs, finals = lattice.arc_lists(), lattice.final_list()
    inner = _inner_states(lattice, arcs)
    met, _, _ = depth_first(fst)
    numbers: dict[int, int] = {}
    new_arcs: dict[int, list[CompactArc]] = {}
    for state in met:
        if inner[state]:
            continue
        number = numbers.setdefault(state, len(numbers))
        new_arcs[number] = []
        for arc in arcs[state]:
            word, graph, acoustic, ids, target = _chain(arc, arcs, inner)
            target = numbers.setdefault(target, len(numbers))
            new_arcs[number].append((word, graph, acoustic, ids, target))
    new_finals: list[FinalWeight | None] = [None] * len(numbers)
    for state, number in numbers.items():
        final = finals[state]
        new_finals[number] = None if final is None else (*final, ())
    of_states = [new_arcs[number] for number in range(len(numbers))]
    made = CompactLattice.from_lists(numbers[fst.start], new_finals, of_states)
    return made.in_order(np.array(top_order(made.fst)))


def _inner_states(lattice: Lattice, arcs: list[list[_Arc]]) -> list[bool]:
    """For each state, whether it is inside a chain: one arc in, and one out that writes no word."""
    fst = lattice.fst
    arcs_in = [0] * fst.num_states
    for target in fst.nextstates.tolist():
        arcs_in[target] += 1
    final = fst.is_final.tolist()
    return [
        state != fst.start
        and not final[state]
        and arcs_in[state] == 1
        and len(of_state) == 1
        and of_state[0][1] == 0
        for state, of_state in enumerate(arcs)
    ]


def _chain(arc: _Arc, arcs: list[list[_Arc]], inner: list[bool]) -> CompactArc:
    """Merge an arc, and the arcs after it while inner[target] is true, into one arc."""
    ilabel, word, graph, acoustic, target = arc
    ids = [ilabel] if ilabel else []
    while inner[target]:
        ilabel, _, more_graph, more_acoustic, target = arcs[target][0]
        graph, acoustic = single(graph + more_graph), single(acoustic + more_acoustic)
        if ilabel:
            ids.append(ilabel)
    return word, graph, acoustic, tuple(ids), target


def expanded(lattice: CompactLattice) -> Lattice:
    """Convert to a Lattice with one arc per transition id; new states get the highest numbers."""
    size = lattice.fst.num_states
    arcs: list[list[_Arc]] = [[] for _ in range(size)]
    finals: list[tuple[float, float] | None] = [None] * size

    def add_chain(state: int, first: CompactArc, num_inner: int) -> int:
        """Add a path from `state` with the first `num_inner` ids of `first`; return its last state.

        The path's first arc has the word and the costs of `first`.
        """
        word, graph, acoustic, ids, _ = first
        for place in range(num_inner):
            arcs.append([])
            finals.append(None)
            costs = (graph, acoustic) if place == 0 else (0.0, 0.0)
            arcs[state].append((ids[place], word if place == 0 else 0, *costs, len(arcs) - 1))
            state = len(arcs) - 1
        return state

    arc_lists = lattice.arc_lists()
    for state, final in enumerate(lattice.final_list()):
        if final is not None:
            graph, acoustic, ids = final
            last = add_chain(state, (0, graph, acoustic, ids, 0), len(ids))
            finals[last] = (0.0, 0.0) if ids else (graph, acoustic)
        for arc in arc_lists[state]:
            word, graph, acoustic, ids, target = arc
            last = add_chain(state, arc, max(len(ids) - 1, 0))
            ilabel = ids[-1] if ids else 0
            if len(ids) > 1:
                arcs[last].append((ilabel, 0, 0.0, 0.0, target))
            else:
                arcs[last].append((ilabel, word, graph, acoustic, target))
    return Lattice.from_lists(lattice.fst.start, finals, arcs)
