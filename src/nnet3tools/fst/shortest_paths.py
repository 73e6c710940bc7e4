"""Best paths and random paths of lattices."""

from __future__ import annotations

import heapq
import math
from random import Random

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.fst.depth_first import top_order
from nnet3tools.fst.fst import NO_STATE
from nnet3tools.fst.lattice import CompactArc, CompactLattice, Lattice
from nnet3tools.fst.lattice_conversion import top_sorted

_Arc = tuple[int, int, float, float, int]


def best_compact_path(lattice: CompactLattice) -> CompactLattice:
    """The best path as a lattice; empty if there is none (Kaldi's CompactLatticeShortestPath)."""
    if lattice.fst.start == NO_STATE:
        return CompactLattice.empty()
    lattice = top_sorted(lattice)
    arcs, finals = lattice.arc_lists(), lattice.final_list()
    costs = [math.inf] * len(arcs)
    costs[lattice.fst.start] = 0.0
    entered: list[tuple[int, CompactArc] | None] = [None] * len(arcs)
    best, last = math.inf, NO_STATE
    for state, of_state in enumerate(arcs):
        for arc in of_state:
            cost = costs[state] + arc[1] + arc[2]
            if cost < costs[arc[4]]:
                costs[arc[4]] = cost
                entered[arc[4]] = state, arc
        final = finals[state]
        if final is not None and costs[state] + final[0] + final[1] < best:
            best, last = costs[state] + final[0] + final[1], state
    if last == NO_STATE:
        return CompactLattice.empty()
    path: list[CompactArc] = []
    state = last
    while (step := entered[state]) is not None:
        state, arc = step
        path.append(arc)
    chain = [[(*arc[:4], place)] for place, arc in enumerate(path[::-1], start=1)]
    return CompactLattice.from_lists(0, [None] * len(path) + [finals[last]], [*chain, []])


@dataclass(frozen=True)
class _Path:
    """A path as a linked list: its last step (an arc, or final costs) and the path before it."""

    before: _Path | None
    step: tuple


def best_paths(lattice: Lattice, count: int) -> list[Lattice]:
    """Up to `count` best paths, the best first, each as a linear lattice.

    If `count` > 1, each path begins with an epsilon arc and ends with an arc with the final costs,
    as in OpenFst's ShortestPath.

    A* search with exact estimates: partial paths are extended in the order of their best
    completion, so that only the best paths are followed.
    """
    start = lattice.fst.start
    if start == NO_STATE:
        return []
    arcs, finals = lattice.arc_lists(), lattice.final_list()
    backward = lattice.costs_to_end(top_order(lattice.fst))
    number = 0
    # (cost of the whole path, order of arrival, cost so far, state (-1: end), path so far)
    queue: list[tuple[float, int, float, int, _Path | None]]
    path = _Path(None, (0, 0, 0.0, 0.0, start)) if count > 1 else None
    queue = [] if math.isinf(backward[start]) else [(backward[start], 0, 0.0, start, path)]
    found: list[Lattice] = []
    while queue and len(found) < count:
        _, _, cost, state, path = heapq.heappop(queue)
        if state < 0 and path is not None:
            found.append(_linear(path))
            continue
        final = finals[state]
        if final is not None:
            number += 1
            total = cost + final[0] + final[1]
            end = _Path(path, final)
            if count > 1:
                end = _Path(_Path(path, (0, 0, *final, -1)), (0.0, 0.0))
            heapq.heappush(queue, (total, number, total, -1, end))
        for arc in arcs[state]:
            after = cost + arc[2] + arc[3]
            total = after + backward[arc[4]]
            if total < math.inf:
                number += 1
                heapq.heappush(queue, (total, number, after, arc[4], _Path(path, arc)))
    return found


def _linear(end: _Path) -> Lattice:
    """The linear lattice of the complete path `end`, whose last step has the final costs."""
    final, path = end.step, end.before
    arcs: list[_Arc] = []
    while path is not None:
        arcs.append(path.step)
        path = path.before
    chain = [[(*arc[:4], place)] for place, arc in enumerate(arcs[::-1], start=1)]
    return Lattice.from_lists(0, [None] * len(arcs) + [final], [*chain, []])


def random_paths(lattice: Lattice, count: int, random: Random) -> list[Lattice]:
    """Draw `count` paths; each arc, and ending, is equally likely. The paths have no costs.

    The draws are not those of OpenFst's RandGen.
    """
    lattice = lattice.connected()
    if lattice.fst.start == NO_STATE:
        return []
    arcs, finals = lattice.arc_lists(), lattice.final_list()
    found = []
    for _ in range(count):
        state, path = lattice.fst.start, None
        while True:
            of_state = arcs[state]
            place = random.randrange(len(of_state) + (finals[state] is not None))
            if place == len(of_state):
                break
            ilabel, olabel, _, _, target = of_state[place]
            path, state = _Path(path, (ilabel, olabel, 0.0, 0.0, target)), target
        found.append(_linear(_Path(path, (0.0, 0.0))))
    return found
