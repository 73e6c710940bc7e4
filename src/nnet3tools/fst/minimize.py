"""Minimization of acyclic deterministic acceptors, and pushing of weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import replace
from nnet3tools.fst.connect import connect, keep_states
from nnet3tools.fst.depth_first import depth_first
from nnet3tools.fst.fst import ArcTuple, Fst
from nnet3tools.fst.weights import single

SHORTEST_DELTA = np.float32(1e-6)
"""Weights are rounded to multiples of this before states are compared (kShortestDelta)."""


def top_order(fst: Fst) -> list[int] | None:
    """The states in a topological order; None if there is a cycle."""
    if (fst.nextstates > fst.sources).all():
        return list(range(fst.num_states))
    _, finished, is_cyclic = depth_first(fst)
    return None if is_cyclic else finished[::-1]


def distances_to_end(fst: Fst, order: list[int]) -> NDArray[np.float32]:
    """Least weight of a path from each state, with the path's final weight, (N,).

    `order` lists the states in topological order.
    """
    lists = fst.arc_lists()
    distances = fst.finals.tolist()
    for state in reversed(order):
        for _, _, weight, target in lists[state]:
            distance = single(weight + distances[target])
            distances[state] = min(distances[state], distance)
    return np.array(distances, np.float32)


def push_to_initial(
    fst: Fst, distances: NDArray[np.float32], remove_total_weight: bool = False
) -> Fst:
    """Push the weights of an acyclic connected FST toward the start; returns the new FST.

    `distances` (N,): least weight of a path from each state to the end. The total weight goes to
    the arcs and final weight of the start, unless it is removed.
    """
    sources, targets = distances[fst.sources], distances[fst.nextstates]
    weights = (fst.weights + targets) - sources
    finals = fst.finals.copy()
    final = fst.is_final
    finals[final] -= distances[final]
    total = distances[fst.start]
    if total != 0.0:
        first = fst.sources == fst.start
        weights[first] = total + weights[first]
        finals[fst.start] = total + finals[fst.start]
        if remove_total_weight:
            weights[first] -= total
            finals[fst.start] -= total
    return replace(fst, weights=weights, finals=finals, properties=0)


def quantized(fst: Fst, delta: np.float32) -> Fst:
    """The FST with weights rounded to multiples of `delta`, in float32 as OpenFst does."""

    def rounded(weights: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.floor(weights / delta + np.float32(0.5)) * delta

    finals = fst.finals.copy()
    finals[fst.is_final] = rounded(finals[fst.is_final])
    return replace(fst, weights=rounded(fst.weights), finals=finals, properties=0)


def minimize_acyclic(fst: Fst) -> Fst:
    """The minimal deterministic acceptor equivalent to an acyclic deterministic one.

    Weights, if any, are pushed to the start and rounded to 1e-6 first. Arcs are sorted by label.
    States keep their order; one of each set of equivalent states remains. DataError for a cycle.
    """
    fst = connect(fst)
    if not fst.num_states:
        return fst
    if (order := top_order(fst)) is None:
        raise DataError("the FST has a cycle: expected none")
    if fst.weights.any() or fst.finals[fst.is_final].any():
        fst = quantized(push_to_initial(fst, distances_to_end(fst, order)), SHORTEST_DELTA)
    return merged_acyclic(fst, order)


def merged_acyclic(fst: Fst, order: list[int]) -> Fst:
    """The FST with equivalent states merged: equal final weights, equal arcs to equivalent states.

    `order` is a topological order. Only states whose longest paths to the end have equal length can
    be equivalent. As in OpenFst, the first state of each class stays; the class with the last state
    of that length keeps this last state.
    """
    lists, finals = fst.arc_lists(), fst.finals.tolist()
    representative = list(range(fst.num_states))
    kept: list[list[ArcTuple]] = [[] for _ in order]
    keep = np.zeros(fst.num_states, bool)
    for states in _by_height(lists, order):
        alike: dict[tuple, list[int]] = {}
        for state in sorted(states, reverse=True):
            arcs = [(i, o, weight, representative[target]) for i, o, weight, target in lists[state]]
            arcs.sort()
            alike.setdefault((finals[state], *arcs), []).append(state)
        for number, ((_, *arcs), members) in enumerate(alike.items()):
            chosen = members[0] if number == 0 else members[-1]
            kept[chosen], keep[chosen] = arcs, True
            for state in members:
                representative[state] = chosen
    return keep_states(Fst.from_lists(representative[fst.start], finals, kept), keep)


def _by_height(lists: list[list[ArcTuple]], order: list[int]) -> list[list[int]]:
    """States grouped by the length of their longest path to the end, the shortest length first.

    `lists` has each state's arcs; `order` is a topological order.
    """
    heights = [0] * len(lists)
    groups: list[list[int]] = []
    for state in reversed(order):
        heights[state] = height = max((heights[arc[3]] + 1 for arc in lists[state]), default=0)
        while len(groups) <= height:
            groups.append([])
        groups[height].append(state)
    return groups
