"""Phases: an order in which the cindexes of a graph can be computed.

The cindexes of a phase depend only on cindexes of earlier phases. A node outside recurrences is one
phase. Within a recurrence, the phase of a cindex is the length of its longest chain of dependencies
inside the recurrence (Kaldi's ComputeComputationPhases, nnet-computation-graph.cc).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import RequestError
from nnet3tools.graph.computation_graph import (
    ComputationGraph,
    add_counts,
    concatenated_ranges,
    sorted_unique,
)
from nnet3tools.graph.node_rules import NetworkPlan
from nnet3tools.nnet.indexes import IntArray

_Ranges = list[tuple[int, int, int]]

Phase = list[tuple[int, IntArray]]
"""A phase split by node: for each of its nodes, (node, cindex ids in Kaldi's order of Indexes)."""


def find_phases(plan: NetworkPlan, graph: ComputationGraph, segment: int) -> Iterator[Phase]:
    """The phases (cindexes computed together) of a segment in order, as (node, cindex ids) pairs.

    The first phase has the cindexes that the request gives.
    """
    of_epoch: dict[int, _Ranges] = {}
    given: Phase = []
    ranges = graph.node_ranges[segment]
    for (node, first, end), num_given in zip(ranges, _num_given(graph, ranges), strict=True):
        if num_given:
            is_input = graph.is_input[first:end]
            given.append((node, np.flatnonzero(is_input).astype(np.int32) + np.int32(first)))
        if num_given < end - first:
            of_epoch.setdefault(plan.epochs[node], []).append((node, first, end))
    if given:
        yield given
    nodes_given = {node for node, _ in given}
    size_of_epoch = np.bincount(plan.epochs).tolist()
    for epoch in sorted(of_epoch):
        ranges = of_epoch[epoch]
        if size_of_epoch[epoch] == 1:
            node, first, end = ranges[0]
            ids = np.arange(first, end, dtype=np.int32)
            yield [(node, ids[~graph.is_input[first:end]] if node in nodes_given else ids)]
        else:
            yield from _recurrent_phases(plan, graph, ranges)


def _num_given(graph: ComputationGraph, ranges: _Ranges) -> list[int]:
    """For each range (node, first id, end), the number of its cindexes that the request gives."""
    return [int(np.count_nonzero(graph.is_input[first:end])) for _, first, end in ranges]


def _recurrent_phases(
    plan: NetworkPlan, graph: ComputationGraph, ranges: _Ranges
) -> Iterator[Phase]:
    ids = np.concatenate([np.arange(first, end, dtype=np.int32) for _, first, end in ranges])
    ids = ids[~graph.is_input[ids]]
    users, used = _edges_inside(graph, ids)
    levels = _longest_chains(len(ids), users, used)
    if (levels < 0).any():
        names = ", ".join(
            plan.nnet.node_names[node]
            for node in sorted_unique(graph.nodes[ids[levels < 0]]).tolist()
            if not plan.nnet.is_component_input(node)
        )
        raise RequestError(
            "cannot compile: no order of computation works for the recurrence through "
            f"{names} (does something depend on both earlier and later frames of itself?)"
        )
    order = levels.argsort(kind="stable")
    ids, levels = ids[order], levels[order]
    nodes = graph.nodes[ids]
    starts = np.flatnonzero((nodes[1:] != nodes[:-1]) | (levels[1:] != levels[:-1])) + 1
    bounds = [0, *starts.tolist(), len(ids)]
    firsts = bounds[:-1]
    cuts = itertools.pairwise(bounds)
    parts = zip(levels[firsts].tolist(), nodes[firsts].tolist(), cuts, strict=True)
    for _, of_level in itertools.groupby(parts, key=itemgetter(0)):
        yield [(node, ids[start:end]) for _, node, (start, end) in of_level]


def _edges_inside(
    graph: ComputationGraph, ids: IntArray
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The M dependencies between `ids` (increasing), as positions in `ids`: (users, used)."""
    position = np.full(graph.num_cindexes + 1, -1, np.int64)
    position[ids] = np.arange(len(ids))
    counts = graph.offsets[ids + 1] - graph.offsets[ids]
    users = np.arange(len(ids)).repeat(counts)
    used = position[graph.terms[concatenated_ranges(graph.offsets[ids], counts)]]
    inside = used >= 0
    return users[inside], used[inside]


def _longest_chains(
    size: int, users: NDArray[np.int64], used: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each of `size` points, the length of its longest chain of dependencies.

    Point users[i] depends on point used[i]. The length is -1 for points in or dependent on a cycle.
    """
    missing = np.bincount(users, minlength=size)
    order = used.argsort(kind="stable")
    users_by_used = users[order]
    counts = np.bincount(used, minlength=size)
    starts = counts.cumsum() - counts
    levels = np.full(size, -1, np.int64)
    ready = (missing == 0).nonzero()[0]
    level = 0
    while len(ready):
        levels[ready] = level
        level += 1
        waiting = users_by_used[concatenated_ranges(starts[ready], counts[ready])]
        add_counts(missing, waiting, -1)
        ready = sorted_unique(waiting[missing[waiting] == 0])
    return levels
