"""Phases: an order in which the cindexes of a graph can be computed.

The cindexes of a phase depend only on cindexes of earlier phases. A node outside recurrences is one
phase. Within a recurrence, the phase of a cindex is the length of its longest chain of dependencies
inside the recurrence (Kaldi's ComputeComputationPhases, nnet-computation-graph.cc).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

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
    for node, first, end in graph.node_ranges[segment]:
        is_input = graph.is_input[first:end]
        if num_given := int(np.count_nonzero(is_input)):
            given.append((node, np.flatnonzero(is_input).astype(np.int32) + np.int32(first)))
        if num_given < end - first:
            of_epoch.setdefault(plan.epochs[node], []).append((node, first, end))
    if given:
        yield given
    nodes_given = {node for node, _ in given}
    size_of_epoch = np.bincount(plan.epochs).tolist()
    recurrent = [epoch for epoch in sorted(of_epoch) if size_of_epoch[epoch] > 1]
    phases_of = _recurrent_phases(plan, graph, [r for epoch in recurrent for r in of_epoch[epoch]])
    for epoch in sorted(of_epoch):
        if epoch in phases_of:
            yield from phases_of[epoch]
        else:
            [(node, first, end)] = of_epoch[epoch]
            ids = np.arange(first, end, dtype=np.int32)
            yield [(node, ids[~graph.is_input[first:end]] if node in nodes_given else ids)]


def _recurrent_phases(
    plan: NetworkPlan, graph: ComputationGraph, ranges: _Ranges
) -> dict[int, list[Phase]]:
    """The phases of each recurrence, by epoch; `ranges` are sorted by epoch and node.

    All recurrences are handled in one loop, whose length is that of the longest chain in any.
    """
    if not ranges:
        return {}
    ids = np.concatenate([np.arange(first, end, dtype=np.int32) for _, first, end in ranges])
    ids = ids[~graph.is_input[ids]]
    epochs = np.array(plan.epochs)[graph.nodes[ids]]
    levels = _longest_chains(len(ids), *_edges_inside(graph, ids, epochs))
    if (levels < 0).any():
        failed = (levels < 0) & (epochs == epochs[levels < 0][0])
        names = ", ".join(
            plan.nnet.node_names[node]
            for node in sorted_unique(graph.nodes[ids[failed]]).tolist()
            if not plan.nnet.is_component_input(node)
        )
        raise RequestError(
            "cannot compile: no order of computation works for the recurrence through "
            f"{names} (does something depend on both earlier and later frames of itself?)"
        )
    order = np.lexsort((levels, epochs))
    ids, levels = ids[order], levels[order]
    nodes = graph.nodes[ids]
    starts = np.flatnonzero((nodes[1:] != nodes[:-1]) | (levels[1:] != levels[:-1])) + 1
    phases: dict[int, dict[int, Phase]] = {}
    for start, end in itertools.pairwise([0, *starts.tolist(), len(ids)]):
        node, level = int(nodes[start]), int(levels[start])
        phase = phases.setdefault(plan.epochs[node], {}).setdefault(level, [])
        phase.append((node, ids[start:end]))
    return {epoch: list(of_epoch.values()) for epoch, of_epoch in phases.items()}


def _edges_inside(
    graph: ComputationGraph, ids: IntArray, epochs: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The M dependencies between `ids` of the same epoch, as positions in `ids`: (users, used)."""
    position = np.full(graph.num_cindexes + 1, -1, np.int64)
    position[ids] = np.arange(len(ids))
    counts = graph.offsets[ids + 1] - graph.offsets[ids]
    users = np.arange(len(ids)).repeat(counts)
    used = position[graph.terms[concatenated_ranges(graph.offsets[ids], counts)]]
    inside = (used >= 0) & (epochs[users] == epochs[used])
    return users[inside], used[inside]


def _longest_chains(
    size: int, users: NDArray[np.int64], used: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each of `size` points, the length of its longest chain of dependencies.

    Point users[i] depends on point used[i]. The length is -1 for points in or dependent on a cycle.
    """
    order = used.argsort(kind="stable")
    counts = np.bincount(used, minlength=size)
    starts, users_by_used = counts.cumsum() - counts, users[order]
    most = int(counts.max())
    # table[p] has the users of point p, then `size`, the number of no point. It takes fewer NumPy
    # calls to find users, but would be too large if one point has many users and most have few.
    table = None
    if most * size <= 16 * len(users):
        table = np.full((size, most), size)
        table[used[order], concatenated_ranges(np.zeros(size, np.int64), counts)] = users_by_used
    missing = np.bincount(users, minlength=size + 1)
    levels = np.full(size, -1, np.int64)
    ready = (missing[:size] == 0).nonzero()[0]
    level = 0
    while len(ready):
        levels[ready] = level
        level += 1
        if table is None:
            waiting = users_by_used[concatenated_ranges(starts[ready], counts[ready])]
        else:
            waiting = table[ready].ravel()
        add_counts(missing, waiting, -1)
        ready = sorted_unique(waiting[missing[waiting] == 0])
    return levels
