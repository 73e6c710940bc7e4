"""Building the computation graph: from the outputs back to what they need and can have.

What Kaldi's ComputationGraphBuilder (nnet-computation-graph.cc) does one cindex at a time with
queues is done here a node at a time. A round explores, from the outputs back, the dependencies of
all cindexes that are wanted and new, and then decides, from the inputs on, which cindexes can be
computed. A feed-forward network takes one round, a recurrence one for each step in time.
What only uncomputable cindexes want is dropped by usable counts, as in Kaldi, and this is what
ends a recurrence over an unbounded past.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nnet3tools.errors import RequestError
from nnet3tools.graph.computation_graph import ComputationGraph
from nnet3tools.graph.network_plan import NetworkPlan
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.graph.tables import (
    COMPUTABLE,
    NOT_COMPUTABLE,
    UNKNOWN,
    CindexStore,
    DependencyRows,
    KeyTable,
    add_counts,
    all_true,
    is_increasing,
    sorted_unique,
)
from nnet3tools.nnet.indexes import BoolArray, IntArray, KeyArray, pack, unpack

__all__ = ["GraphBuilder"]

_SPARE_ROUNDS = 500
"""Rounds that building may take beyond what the frames of the request explain."""


class GraphBuilder:
    """Builds one graph; for several segments call compute() and prune() for each in turn."""

    def __init__(self, plan: NetworkPlan) -> None:
        self.plan = plan
        self.graph = ComputationGraph([KeyTable() for _ in plan.rules])
        self.store = CindexStore()
        self.dependency_rows: list[DependencyRows] = []
        self.segment_start = 0
        self._queue: dict[int, list[IntArray]] = {}
        self._waiting: dict[int, list[tuple[IntArray, IntArray]]] = {}
        self._dirty: set[int] = set()
        self._some_unusable = False

    def compute(self, request: ComputationRequest) -> None:
        """Find all that the request's outputs may need, and what of it can be computed."""
        nnet = self.plan.nnet
        request.validate(nnet)
        self.segment_start = self.store.size
        self.dependency_rows = [DependencyRows() for _ in self.plan.rules]
        self._queue, self._waiting, self._dirty, self._some_unusable = {}, {}, set(), False
        for spec in request.inputs:
            ids = self._add_requested(nnet.node_index(spec.name), pack(spec.indexes), COMPUTABLE)
            self.store.is_input[ids] = True
        for spec in request.outputs:
            node = nnet.node_index(spec.name)
            ids = self._add_requested(node, pack(spec.indexes), UNKNOWN)
            self.store.usable[ids] = 1
            self._queue[node] = [ids]
        max_rounds = self._max_rounds(request)
        for _ in range(max_rounds):
            if not self._queue and not self._dirty:
                return
            self._explore()
            self._decide()
        raise RequestError(
            "cannot compile: the outputs depend on an endless chain of earlier or later frames "
            f"(given up after {max_rounds} steps)"
        )

    def _max_rounds(self, request: ComputationRequest) -> int:
        """A recurrence takes at most a round for each frame and dependency that closes a circle."""
        times = [
            spec.indexes[:, 1] for spec in request.inputs + request.outputs if len(spec.indexes)
        ]
        span = max(int(t.max()) for t in times) - min(int(t.min()) for t in times)
        return _SPARE_ROUNDS + (span + 1) * (1 + self.plan.num_back_edges)

    def computable_outputs(self, request: ComputationRequest) -> list[BoolArray]:
        """For each output which of its rows can be computed; after compute(), before prune()."""
        ids = [
            self.graph.find(self.plan.nnet.node_index(spec.name), spec.indexes)
            for spec in request.outputs
        ]
        return [self.store.status[of_output] == COMPUTABLE for of_output in ids]

    def graph_index(self, cindex: int) -> tuple[int, int, int]:
        """(n, t, x) of a cindex; after compute(), before prune()."""
        n, t, x = unpack(self.store.keys[cindex : cindex + 1])[0].tolist()
        return n, t, x

    # -- exploring: which cindexes there are

    def _add_requested(self, node: int, keys: KeyArray, status: int) -> IntArray:
        table = self.graph.tables[node]
        if len(keys) and (table.find(keys) >= 0).any():
            raise RequestError(
                f"computation request: '{self.plan.nnet.node_names[node]}' has rows that an "
                "earlier segment has too"
            )
        keys = np.sort(keys)
        first = self.store.add(node, keys, status)
        if len(keys):
            table.insert(keys, first)
        return np.arange(first, first + len(keys), dtype=np.int32)

    def _add(self, node: int, keys: KeyArray) -> IntArray:
        """Ids of cindexes of a node; those that are new are added and queued."""
        table = self.graph.tables[node]
        ids = table.find(keys)
        if len(ids) == 0 or ids.min() >= 0:
            return ids
        new = sorted_unique(keys[ids < 0])
        is_missing_input = node in self.plan.input_nodes
        first = self.store.add(node, new, NOT_COMPUTABLE if is_missing_input else UNKNOWN)
        table.insert(new, first)
        if not is_missing_input:
            added = np.arange(first, first + len(new), dtype=np.int32)
            self._queue.setdefault(node, []).append(added)
        return table.find(keys)

    def _explore(self) -> None:
        """Find the dependencies of the queued cindexes, each node once."""
        store = self.store
        for node in self.plan.from_outputs:
            if (batches := self._queue.pop(node, None)) is None:
                continue
            ids = batches[0] if len(batches) == 1 else sorted_unique(np.concatenate(batches))
            wanted = (store.usable[ids] > 0) & (store.slots[ids] < 0)
            if not all_true(wanted):
                ids = ids[wanted]
            if len(ids) == 0:
                continue
            num_before = store.size
            rows = self.plan.rules[node].dependencies(store.keys[ids], self._add)
            of_node = self.dependency_rows[node]
            store.slots[ids] = np.arange(of_node.size, of_node.size + len(ids))
            of_node.append(rows)
            self._want(rows, num_before)
            self._waiting.setdefault(node, []).append((ids, rows))
            self._dirty.add(node)

    # -- usable counts: how many cindexes that are wanted and may be computable want this one

    def _want(self, rows: IntArray, num_before: int) -> None:
        """Count these dependencies up; those that come to be wanted again are taken up again.

        Ids from `num_before` on have just been made, and are in the queue.
        """
        store = self.store
        pending = [rows]
        while pending:
            ids = _present(pending.pop())
            if self._some_unusable:
                again = sorted_unique(ids[(store.usable[ids] == 0) & (ids < num_before)])
                for node, of_node in self._by_node(again[store.status[again] == UNKNOWN]):
                    self._queue.setdefault(node, []).append(of_node)
                pending += self._rows_of_explored(again)
            add_counts(store.usable, ids, 1)

    def _unwant(self, rows: IntArray) -> None:
        """Count these dependencies down, and those of whatever nobody wants any more."""
        store = self.store
        pending = [rows]
        while pending:
            ids = _present(pending.pop())
            add_counts(store.usable, ids, -1)
            unusable = sorted_unique(ids[store.usable[ids] == 0])
            self._some_unusable |= len(unusable) > 0
            pending += self._rows_of_explored(unusable)

    def _rows_of_explored(self, ids: IntArray) -> list[IntArray]:
        """The dependencies of those of these that are explored and not found uncomputable."""
        store = self.store
        ids = ids[(store.slots[ids] >= 0) & (store.status[ids] != NOT_COMPUTABLE)]
        rows = []
        for node, of_node in self._by_node(ids):
            rows.append(self.dependency_rows[node].take(store.slots[of_node]))
            if node in self._waiting:
                self._dirty.add(node)
        return rows

    def _by_node(self, ids: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Split ids by their node."""
        nodes = self.store.nodes[ids]
        if len(ids) and all_true(nodes == nodes[0]):
            yield int(nodes[0]), ids
            return
        for node in sorted_unique(nodes).tolist():
            yield node, ids[nodes == node]

    # -- deciding: which cindexes can be computed

    def _decide(self) -> None:
        """Decide on the undecided cindexes of nodes whose dependencies have changed."""
        for node in reversed(self.plan.from_outputs):
            if node in self._dirty:
                self._dirty.discard(node)
                self._decide_node(node)

    def _decide_node(self, node: int) -> None:
        store = self.store
        if (batches := self._waiting.pop(node, None)) is None:
            return
        ids, rows = batches[0] if len(batches) == 1 else _join(batches)
        usable = store.usable[ids] > 0
        if not all_true(usable):
            self._waiting.setdefault(node, []).append((ids[~usable], rows[~usable]))
            ids, rows = ids[usable], rows[usable]
        computable, hopeless = self._judge(node, ids, rows)
        store.status[ids[computable]] = COMPUTABLE
        decided = computable
        if np.count_nonzero(hopeless):
            store.status[ids[hopeless]] = NOT_COMPUTABLE
            self._unwant(rows[hopeless])
            decided = computable | hopeless
        if not all_true(decided):
            self._waiting.setdefault(node, []).append((ids[~decided], rows[~decided]))
        if np.count_nonzero(decided):
            self._dirty.update(n for n in self.plan.consumers[node] if n in self._waiting)

    def _judge(self, node: int, ids: IntArray, rows: IntArray) -> tuple[BoolArray, BoolArray]:
        """Which are computable by what is known to be, and which are not whatever is still open."""
        store, rule = self.store, self.plan.rules[node]
        status = store.status[rows]
        if rule.needs_all:
            computable = (status == COMPUTABLE).all(axis=1)
            if all_true(computable):
                return computable, ~computable
            return computable, (status == NOT_COMPUTABLE).any(axis=1)
        keys, row_keys = store.keys[ids], store.keys[rows]
        computable, _ = rule.used(keys, rows, row_keys, status == COMPUTABLE)
        if all_true(computable):
            return computable, ~computable
        possible, _ = rule.used(keys, rows, row_keys, status != NOT_COMPUTABLE)
        return computable, ~possible

    # -- pruning: what the outputs really use

    def prune(self) -> None:
        """Keep the inputs and what the outputs use; number these and append them to the graph.

        All outputs must be computable.
        """
        used_rows, required = self._find_required()
        self._renumber(used_rows, required | self.store.is_input[: self.store.size])

    def _find_required(self) -> tuple[dict[int, list[tuple[IntArray, IntArray]]], BoolArray]:
        """Cindexes required of each node, with the dependencies they use; and a flag for each."""
        store = self.store
        required = np.zeros(store.size, bool)
        required[: self.segment_start] = True
        pending: dict[int, list[IntArray]] = {}
        for node in self.plan.nnet.output_nodes():
            ids = self.graph.tables[node].ids
            if len(ids := ids[ids >= self.segment_start]):
                required[ids] = True
                pending[node] = [ids]
        used_rows: dict[int, list[tuple[IntArray, IntArray]]] = {}
        while pending:
            for node in self.plan.from_outputs:
                if (batches := pending.pop(node, None)) is None:
                    continue
                ids = batches[0] if len(batches) == 1 else np.concatenate(batches)
                rows = self._used(node, ids)
                used_rows.setdefault(node, []).append((ids, rows))
                new = _present(rows)
                new = new[~required[new]]
                required[new] = True
                new = sorted_unique(new[~store.is_input[new]])
                source = self.plan.rules[node].single_source
                groups = self._by_node(new) if source is None else [(source, new)]
                for of_node, of_group in groups:
                    if len(of_group):
                        pending.setdefault(of_node, []).append(of_group)
        return used_rows, required

    def _used(self, node: int, ids: IntArray) -> IntArray:
        """The dependencies that computable cindexes of a node use, -1 for those they do not."""
        store, rule = self.store, self.plan.rules[node]
        rows = self.dependency_rows[node].take(store.slots[ids])
        if rule.needs_all:
            return rows
        available = store.status[rows] == COMPUTABLE
        _, used = rule.used(store.keys[ids], rows, store.keys[rows], available)
        return np.where(used, rows, -1)

    def _renumber(
        self, used_rows: dict[int, list[tuple[IntArray, IntArray]]], keep: BoolArray
    ) -> None:
        start, graph, store = self.segment_start, self.graph, self.store
        # One more entry than there are ids, so that -1 stays -1.
        new_of = np.full(store.size + 1, -1, np.int32)
        new_of[:start] = np.arange(start)
        ranges: list[tuple[int, int, int]] = []
        end = start
        kept_ids = [np.empty(0, np.int32)]
        for node, table in enumerate(graph.tables):
            if len(table.ids) == 0:
                continue
            kept = keep[table.ids]
            ids = table.ids if all_true(kept) else table.ids[kept]
            fresh = ids if start == 0 else ids[ids >= start]
            first, end = end, end + len(fresh)
            new_of[fresh] = np.arange(first, end)
            kept_ids.append(fresh)
            if len(fresh):
                ranges.append((node, first, end))
            table.select(kept, new_of[ids])
        old_ids = np.concatenate(kept_ids)
        keys, nodes, is_input = store.keys[old_ids], store.nodes[old_ids], store.is_input[old_ids]
        terms, widths = [], []
        for node, first, last in ranges:
            rows = _renumbered_rows(used_rows.get(node, []), new_of, first, last)
            terms.append(rows.ravel())
            widths.append(np.full(last - first, rows.shape[1]))
        offsets = np.cumsum(np.concatenate(widths)) + graph.offsets[-1]
        graph.nodes = np.concatenate([graph.nodes, nodes])
        graph.keys = np.concatenate([graph.keys, keys])
        graph.is_input = np.concatenate([graph.is_input, is_input])
        graph.offsets = np.concatenate([graph.offsets, offsets])
        graph.terms = np.concatenate([graph.terms, *terms])
        graph.segment_ends.append(end)
        graph.node_ranges.append(ranges)
        store.restart(start, keys, nodes, is_input)


def _present(rows: IntArray) -> IntArray:
    """The ids in rows of dependencies, without the -1 of padding."""
    ids = rows.ravel()
    return ids if len(ids) == 0 or ids.min() >= 0 else ids[ids >= 0]


def _padded(rows: IntArray, width: int) -> IntArray:
    if rows.shape[1] == width:
        return rows
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=-1)


def _join(batches: list[tuple[IntArray, IntArray]]) -> tuple[IntArray, IntArray]:
    width = max(rows.shape[1] for _, rows in batches)
    ids = np.concatenate([ids for ids, _ in batches])
    return ids, np.concatenate([_padded(rows, width) for _, rows in batches])


def _renumbered_rows(
    batches: list[tuple[IntArray, IntArray]], new_of: IntArray, first: int, end: int
) -> IntArray:
    """Dependencies of cindexes first ... end - 1 of a node, in that order, under new ids."""
    if not batches:
        return np.empty((end - first, 0), np.int32)
    ids, rows = _join(batches) if len(batches) > 1 else batches[0]
    at = new_of[ids]
    rows = new_of[rows]
    if len(ids) == end - first and is_increasing(at):
        return rows
    ordered = np.full((end - first, rows.shape[1]), -1, np.int32)
    ordered[at - first] = rows
    return ordered
