"""Pruning: of all that was found when building the graph, what the outputs really use.

Optional dependencies that exist but are not used, and what only they need, drop out; the rest gets
its final numbers (Kaldi's ComputationGraphBuilder::Prune, nnet-computation-graph.cc).
"""

from __future__ import annotations

import numpy as np

from nnet3tools.graph.computation_graph import ComputationGraph
from nnet3tools.graph.network_plan import NetworkPlan
from nnet3tools.graph.tables import (
    COMPUTABLE,
    CindexStore,
    DependencyRows,
    all_true,
    as_slice,
    is_increasing,
    join_rows,
    present_ids,
    sorted_unique,
)
from nnet3tools.nnet.indexes import BoolArray, IntArray

__all__ = ["prune_segment"]

_Batches = dict[int, list[tuple[IntArray, IntArray]]]
"""Node -> (ids, rows of the dependencies they use)."""


def prune_segment(
    plan: NetworkPlan,
    graph: ComputationGraph,
    store: CindexStore,
    dependency_rows: list[DependencyRows],
    start: int,
) -> None:
    """Number the inputs and what the outputs use, of the ids from `start` on, and add them to
    the graph; `store` then holds just these. All outputs must be computable.
    """
    finder = _Finder(plan, graph, store, dependency_rows, start)
    finder.find()
    _renumber(graph, store, start, finder.required, finder.used_rows)


class _Finder:
    """Finds what is required, going from the outputs back."""

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
        self.used_rows: _Batches = {}
        self.required: BoolArray = store.is_input[: store.size].copy()
        """A flag for each cindex; inputs are kept in any case."""
        self.required[:start] = True

    def find(self) -> None:
        """Fill in `required` and `used_rows`."""
        pending: dict[int, list[IntArray]] = {}
        for node in self._plan.nnet.output_nodes():
            ids = self._graph.tables[node].ids
            if len(ids := ids[ids >= self._start]):
                self.required[ids] = True
                pending[node] = [ids]
        while pending:
            for node in self._plan.from_outputs:
                if (batches := pending.pop(node, None)) is not None:
                    ids = batches[0] if len(batches) == 1 else np.concatenate(batches)
                    self._visit(node, ids, pending)

    def _visit(self, node: int, ids: IntArray, pending: dict[int, list[IntArray]]) -> None:
        rows = self._used(node, ids)
        self.used_rows.setdefault(node, []).append((ids, rows))
        new = present_ids(rows)
        new = sorted_unique(new[~self.required[new]])
        self.required[as_slice(new)] = True
        source = self._plan.rules[node].single_source
        groups = self._store.by_node(new) if source is None else [(source, new)]
        for of_node, of_group in groups:
            if len(of_group):
                pending.setdefault(of_node, []).append(of_group)

    def _used(self, node: int, ids: IntArray) -> IntArray:
        """The dependencies that computable cindexes of a node use, -1 for those they do not."""
        store, rule = self._store, self._plan.rules[node]
        at = as_slice(ids)
        rows = self._dependency_rows[node].take(store.slots[at])
        if rule.needs_all:
            return rows
        available = store.status[rows] == COMPUTABLE
        _, used = rule.used(store.keys[at], rows, store.keys[rows], available)
        return np.where(used, rows, np.int32(-1))


def _renumber(
    graph: ComputationGraph, store: CindexStore, start: int, keep: BoolArray, used_rows: _Batches
) -> None:
    """Append what is kept to the graph, node by node, in the order of keys."""
    # One more entry than there are ids, so that -1 stays -1.
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
            at = as_slice(ids)
            new_of[at] = np.arange(first, end)
            keys.append(table.keys if num_fresh == len(old_ids) else table.keys[fresh])
            is_input.append(store.is_input[at])
            ranges.append((node, first, end))
        table.ids = new_of[as_slice(old_ids)].copy()
    terms, widths = [graph.terms], []
    for node, first, last in ranges:
        rows = _renumbered_rows(used_rows.get(node, []), new_of, first, last)
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
    batches: list[tuple[IntArray, IntArray]], new_of: IntArray, first: int, end: int
) -> IntArray:
    """Dependencies of cindexes first ... end - 1 of a node, in that order, under new ids."""
    if not batches:
        return np.empty((end - first, 0), np.int32)
    ids, rows = join_rows(batches) if len(batches) > 1 else batches[0]
    at = new_of[as_slice(ids)]
    rows = new_of[rows]
    if len(ids) == end - first and is_increasing(at):
        return rows
    ordered = np.full((end - first, rows.shape[1]), -1, np.int32)
    ordered[at - first] = rows
    return ordered
