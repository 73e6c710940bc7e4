"""Pruning: keeps the cindexes that the outputs use, and gives them their final ids.

Optional dependencies that are not used, and their own dependencies, are removed (Kaldi's
ComputationGraphBuilder::Prune, nnet-computation-graph.cc).
"""

from __future__ import annotations

import numpy as np

from nnet3tools.graph.computation_graph import (
    COMPUTABLE,
    CindexStore,
    ComputationGraph,
    DependencyRows,
    all_true,
    as_slice,
    concatenated_ranges,
    present_ids,
    sorted_unique,
)
from nnet3tools.graph.node_rules import NetworkPlan
from nnet3tools.nnet.indexes import BoolArray, IntArray

_UsedRows = dict[int, tuple[IntArray, IntArray]]
"""Node -> (ids in the order of keys, rows of the dependencies that they use)."""


def prune_segment(
    plan: NetworkPlan,
    graph: ComputationGraph,
    store: CindexStore,
    dependency_rows: list[DependencyRows],
    start: int,
) -> None:
    """Add one request's cindexes to the graph: the inputs, and all used ones from id `start` on.

    `store` has the builder's data about cindexes, `dependency_rows[node]` their dependencies.
    Afterwards `store` holds only the added cindexes, under new ids. All outputs must be computable.
    """
    finder = _Finder(plan, graph, store, dependency_rows, start)
    finder.find()
    _renumber(graph, store, start, finder.required, finder.used_rows)


class _Finder:
    """Finds the cindexes to keep: inputs, and computable cindexes that an output uses."""

    def __init__(
        self,
        plan: NetworkPlan,
        graph: ComputationGraph,
        store: CindexStore,
        dependency_rows: list[DependencyRows],
        start: int,
    ) -> None:
        self._plan, self._graph, self._store = plan, graph, store
        self._dependency_rows, self._start = dependency_rows, start
        self.used_rows: _UsedRows = {}
        self.required: BoolArray = store.is_input[: store.size].copy()
        """A flag for each cindex; inputs are always kept."""
        self.required[:start] = True

    def find(self) -> None:
        """Find the cindexes to keep: set `required`, by id, and `used_rows`, by node."""
        for node in self._plan.nnet.output_nodes():
            self.required[self._graph.tables[node].ids] = True
        # Without a recurrence, one visit to each node is enough.
        left_over: list[IntArray] = []
        places_of: dict[int, slice | IntArray] = {}
        for node in self._plan.from_outputs:
            ids, places = self._computed(node)
            if len(ids):
                rows = self._used(node, places)
                self.used_rows[node] = ids, rows
                places_of[node] = places
                required = self.required[places]
                if self._plan.back_edges:
                    left_over.append(ids[~required])
                self.required[present_ids(rows if all_true(required) else rows[required])] = True
        if left_over:
            unfollowed = np.concatenate(left_over)
            self._follow(unfollowed[self.required[unfollowed]])
        for node, (ids, rows) in self.used_rows.items():
            kept = self.required[places_of[node]]
            if not all_true(kept):
                self.used_rows[node] = ids[kept], rows[kept]

    def _computed(self, node: int) -> tuple[IntArray, slice | IntArray]:
        """(ids of the node's computable cindexes in this segment, their index in arrays over ids).

        The index is a slice if the ids are consecutive, otherwise the ids themselves.
        """
        ids = self._graph.tables[node].ids
        if self._start:
            ids = ids[ids >= self._start]
        places = as_slice(ids)
        computed = (self._store.slots[places] >= 0) & (self._store.status[places] == COMPUTABLE)
        if all_true(computed):
            return ids, places
        ids = ids[computed]
        return ids, as_slice(ids)

    def _used(self, node: int, places: slice | IntArray) -> IntArray:
        """For each cindex of `places` (index over ids), a row of the ids it uses, -1 for unused."""
        store, rule = self._store, self._plan.rules[node]
        rows = self._dependency_rows[node].take(store.slots[places])
        if rule.needs_all:
            return rows
        available = store.status[rows] == COMPUTABLE
        _, used = rule.used(store.keys[places], rows, store.keys[rows], available)
        return np.where(used, rows, np.int32(-1))

    def _follow(self, new: IntArray) -> None:
        """Mark all cindexes as required that the cindexes `new` depend on, directly or indirectly.

        A recurrence needs a round for each frame or more, so a round must be cheap: it works on
        ids, without a loop over nodes.
        """
        size = self._store.size
        starts, widths = np.zeros(size, np.int64), np.zeros(size, np.int64)
        total = 0
        for ids, rows in self.used_rows.values():
            places, width = as_slice(ids), rows.shape[1]
            starts[places] = total + width * np.arange(len(ids))
            widths[places] = width
            total += rows.size
        terms = np.concatenate([rows.ravel() for _, rows in self.used_rows.values()])
        while len(new):
            new = present_ids(terms[concatenated_ranges(starts[new], widths[new])])
            new = sorted_unique(new[~self.required[new]])
            self.required[new] = True


def _renumber(
    graph: ComputationGraph, store: CindexStore, start: int, keep: BoolArray, used_rows: _UsedRows
) -> None:
    """Append the cindexes with ids from `start` on that `keep` (by id) flags to the graph.

    They get new ids, also in `store`, by node and key. `used_rows[node]`: (ids, rows they use).
    """
    # The additional last entry maps id -1 to -1.
    new_of = np.full(store.size + 1, -1, np.int32)
    new_of[:start] = np.arange(start)
    ranges: list[tuple[int, int, int]] = []
    end = start
    keys, is_input = [graph.keys], [graph.is_input]
    for node, table in enumerate(graph.tables):
        if len(table.ids) == 0:
            continue
        old_ids = table.ids
        kept = keep[as_slice(old_ids)]
        if not all_true(kept):
            old_ids = old_ids[kept]
            table.keys = table.keys[kept]
        fresh = old_ids >= start
        num_fresh = int(np.count_nonzero(fresh))
        first, end = end, end + num_fresh
        if num_fresh:
            ids = old_ids if num_fresh == len(old_ids) else old_ids[fresh]
            places = as_slice(ids)
            new_of[places] = np.arange(first, end)
            keys.append(table.keys if num_fresh == len(old_ids) else table.keys[fresh])
            is_input.append(store.is_input[places])
            ranges.append((node, first, end))
        table.ids = new_of[as_slice(old_ids)].copy()
    terms, widths = [graph.terms], []
    for node, first, last in ranges:
        rows = _renumbered_rows(used_rows.get(node), new_of, first, last)
        terms.append(rows.ravel())
        widths.append(rows.shape[1])
    counts = [last - first for _, first, last in ranges]
    offsets = np.cumsum(np.repeat(widths, counts)) + graph.offsets[-1]
    nodes = np.repeat(np.array([node for node, _, _ in ranges], np.int32), counts)
    graph.nodes = np.concatenate([graph.nodes, nodes])
    graph.keys = np.concatenate(keys)
    graph.is_input = np.concatenate(is_input)
    graph.offsets = np.concatenate([graph.offsets, offsets])
    graph.terms = np.concatenate(terms)
    graph.segment_ends.append(end)
    graph.node_ranges.append(ranges)
    store.restart(start, graph.keys[start:], nodes, graph.is_input[start:])


def _renumbered_rows(
    used_rows: tuple[IntArray, IntArray] | None, new_of: IntArray, first: int, end: int
) -> IntArray:
    """The dependencies, under new ids, of a node's cindexes first ... end - 1; (cindexes, width).

    `used_rows`: (old ids, rows of ids they use), None for an input node; `new_of`: old id -> new.
    """
    if used_rows is None:
        return np.empty((end - first, 0), np.int32)
    ids, rows = used_rows
    rows = new_of[rows]
    if len(ids) == end - first:
        return rows
    # The others are inputs.
    ordered = np.full((end - first, rows.shape[1]), -1, np.int32)
    ordered[new_of[ids] - first] = rows
    return ordered
