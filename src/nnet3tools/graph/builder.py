"""Building the computation graph: from the outputs back to their inputs, hop by hop.

Kaldi's ComputationGraphBuilder (nnet-computation-graph.cc) handles one cindex at a time with
queues; this builder handles all cindexes of a node at a time. Each round has two phases. The first
goes from the outputs back and explores the dependencies of new cindexes. The second goes from the
inputs on and decides which cindexes can be computed. A feed-forward network takes one round. A
recurrence would take one round for each step in time; instead, all steps within the inputs' frames
are explored together. As in Kaldi, usable counts drop cindexes that only uncomputable cindexes
depend on, which ends a recurrence over an unbounded past.
"""

from __future__ import annotations

import numpy as np

from nnet3tools.errors import RequestError
from nnet3tools.graph.computation_graph import (
    COMPUTABLE,
    NOT_COMPUTABLE,
    UNKNOWN,
    CindexStore,
    ComputationGraph,
    DependencyRows,
    KeyTable,
    add_counts,
    all_true,
    as_slice,
    join_rows,
    present_ids,
    sorted_unique,
)
from nnet3tools.graph.node_rules import NetworkPlan
from nnet3tools.graph.pruning import prune_segment
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.graph.strict_building import StrictGraph, strict_graph
from nnet3tools.nnet.indexes import BoolArray, IntArray, KeyArray, pack, repeated_beyond, unpack

_SPARE_ROUNDS = 500
"""Rounds that are allowed beyond the number that the frames of the request explain."""


class GraphBuilder:
    """Builds a ComputationGraph. For each request (segment) in turn, call compute() and prune()."""

    def __init__(
        self, plan: NetworkPlan, *, foresee: bool = True, expect_all: bool = False
    ) -> None:
        """Start an empty graph. `foresee`: explore recurrences ahead, which saves rounds.

        With `expect_all`, a method is tried first that works only if all cindexes can be computed,
        and then takes a fifth of the time. `plan` has facts about the network.
        """
        self.plan = plan
        self._expects_all = expect_all and not plan.back_edges
        self._strict: StrictGraph | None = None
        self.foresees = foresee and bool(plan.back_edges)
        self.graph = ComputationGraph([KeyTable() for _ in plan.rules])
        self.store = CindexStore()
        self.dependency_rows: list[DependencyRows] = []
        self.segment_start = 0
        self._queue: dict[int, list[IntArray]] = {}
        self._waiting: dict[int, list[tuple[IntArray, IntArray]]] = {}
        self._dirty: set[int] = set()
        self._some_unusable = False
        self._exploring = -1
        """The node that `_explore` is working on."""
        self._foreseen: list[IntArray] = []
        """Cindexes of recurrences, explored ahead, before another cindex depends on them."""
        self._frames: tuple[int, int, int] | None = None
        """First and last frame of the inputs, and number of steps to explore ahead; None: none."""

    def compute(self, request: ComputationRequest) -> None:
        """Find the cindexes that the outputs may need, and which of them are computable."""
        nnet = self.plan.nnet
        request.validate(nnet)
        self.segment_start = self.store.size
        self.dependency_rows = [DependencyRows() for _ in self.plan.rules]
        self._queue, self._waiting, self._dirty, self._some_unusable = {}, {}, set(), False
        if self._expects_all and not self.segment_start:
            if (strict := strict_graph(self.plan, request)) is not None:
                strict.fill(self.graph, self.store, self.dependency_rows)
                self._strict = strict
                return
        self._foreseen, self._frames = [], self._frames_to_foresee(request)
        for spec in request.inputs:
            ids = self._add_requested(nnet.node_index(spec.name), pack(spec.indexes), COMPUTABLE)
            self.store.is_input[ids] = True
        for spec in request.outputs:
            node = nnet.node_index(spec.name)
            ids = self._add_requested(node, pack(spec.indexes), UNKNOWN)
            self.store.usable[ids] = 1
            self._queue[node] = [ids]
        if self._frames is not None:
            # The foreseen cindexes, too, are explored before the first decision.
            self._explore()
        max_rounds = self._max_rounds(request)
        for _ in range(max_rounds):
            if not self._queue and not self._dirty:
                if not self._foreseen:
                    return
                foreseen, self._foreseen, self._frames = self._foreseen, [], None
                self._unwant(np.concatenate(foreseen))
            self._explore()
            self._decide()
        raise RequestError(
            "cannot compile: the outputs depend on an endless chain of earlier or later frames "
            f"(given up after {max_rounds} steps)"
        )

    def _frames_to_foresee(self, request: ComputationRequest) -> tuple[int, int, int] | None:
        """(first, last, most): explore recurrences ahead to these frames, at most `most` times.

        None for a network without recurrence, and for later segments of a graph.
        """
        if not self.foresees or self.segment_start:
            return None
        times = [spec.indexes[:, 1] for spec in request.inputs if len(spec.indexes)]
        if not times:
            return None
        num_rows = sum(len(t) for t in times)
        return min(int(t.min()) for t in times), max(int(t.max()) for t in times), num_rows

    def _max_rounds(self, request: ComputationRequest) -> int:
        """Rounds after which `compute` gives up; they grow with the frames and the recurrences."""
        times = [
            spec.indexes[:, 1] for spec in request.inputs + request.outputs if len(spec.indexes)
        ]
        span = max(int(t.max()) for t in times) - min(int(t.min()) for t in times)
        return _SPARE_ROUNDS + (span + 1) * (1 + len(self.plan.back_edges))

    def computable_outputs(self, request: ComputationRequest) -> list[BoolArray]:
        """Flags of the computable rows of each output. For use before prune()."""
        ids = [
            self.graph.find(self.plan.nnet.node_index(spec.name), spec.indexes)
            for spec in request.outputs
        ]
        return [self.store.status[of_output] == COMPUTABLE for of_output in ids]

    def graph_index(self, cindex: int) -> tuple[int, int, int]:
        """The Index (n, t, x) of a cindex. For use before prune()."""
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
        """The ids of a node's cindexes with these keys (packed Indexes); new ones are queued."""
        table = self.graph.tables[node]
        if len(table.keys) == 0:
            new = sorted_unique(keys)
            found = self._add_new(node, new)
            return found if new is keys else table.find(keys)
        ids = table.find(keys)
        missing = ids < 0
        if not np.count_nonzero(missing):
            return ids
        # The common cases: all keys are missing, or none; missing keys are sorted already.
        wanted = keys if all_true(missing) else keys[missing]
        new = sorted_unique(wanted)
        further = self._further_keys(node, new)
        both = np.sort(np.concatenate([new, further])) if len(further) else new
        found = self._add_new(node, both)
        if len(further):
            foreseen = table.find(further)
            self.store.usable[foreseen] = 1
            self._foreseen.append(foreseen)
        elif new is keys:
            return found
        ids[missing] = table.find(wanted)
        return ids

    def _add_new(self, node: int, keys: KeyArray) -> IntArray:
        """Add new cindexes of a node, by increasing packed Index; return their consecutive ids."""
        is_missing_input = node in self.plan.input_nodes
        first = self.store.add(node, keys, NOT_COMPUTABLE if is_missing_input else UNKNOWN)
        self.graph.tables[node].insert(keys, first)
        ids = np.arange(first, first + len(keys), dtype=np.int32)
        if not is_missing_input:
            self._queue.setdefault(node, []).append(ids)
        return ids

    def _further_keys(self, node: int, new: KeyArray) -> KeyArray:
        """Indexes, packed as integers, that later times of a recurrence add to `node` after `new`.

        The caller adds these keys, too, which saves a round for each time step. The result does not
        depend on them: at the end, a step stays only if another cindex depends on it.
        """
        if self._frames is None or (self._exploring, node) not in self.plan.back_edges:
            return new[:0]
        return repeated_beyond(self.graph.tables[node].keys, new, *self._frames)

    def _explore(self) -> None:
        """Find the dependencies of the queued cindexes, visiting each node once."""
        store = self.store
        for node in self.plan.from_outputs:
            if (batches := self._queue.pop(node, None)) is None:
                continue
            ids = batches[0] if len(batches) == 1 else sorted_unique(np.concatenate(batches))
            places = as_slice(ids)
            wanted = (store.usable[places] > 0) & (store.slots[places] < 0)
            if not all_true(wanted):
                ids = ids[wanted]
                places = as_slice(ids)
            if len(ids) == 0:
                continue
            num_before, self._exploring = store.size, node
            rows = self.plan.rules[node].dependencies(store.keys[places].copy(), self._add)
            of_node = self.dependency_rows[node]
            store.slots[places] = np.arange(of_node.size, of_node.size + len(ids))
            of_node.append(rows)
            self._want(rows, num_before)
            self._waiting.setdefault(node, []).append((ids, rows))
            self._dirty.add(node)

    # -- usable counts: by cindex, the number of usable cindexes that depend on it

    def _want(self, rows: IntArray, num_before: int) -> None:
        """Count one more dependent cindex for each id in `rows`; queue ids that had none before.

        Only dependents that may be computable count. Ids from `num_before` on are queued already.
        """
        store = self.store
        pending = [rows]
        while pending:
            ids = present_ids(pending.pop())
            if self._some_unusable:
                again = sorted_unique(ids[(store.usable[ids] == 0) & (ids < num_before)])
                for node, of_node in self.store.by_node(again[store.status[again] == UNKNOWN]):
                    self._queue.setdefault(node, []).append(of_node)
                pending += self._rows_of_explored(again)
            add_counts(store.usable, ids, 1)

    def _unwant(self, rows: IntArray) -> None:
        """For each id in `rows`, count one less cindex that depends on it and may be computable.

        If none is left, the same is done for the ids on which the id depends.
        """
        store = self.store
        pending = [rows]
        while pending:
            ids = present_ids(pending.pop())
            add_counts(store.usable, ids, -1)
            unusable = sorted_unique(ids[store.usable[ids] == 0])
            self._some_unusable |= len(unusable) > 0
            pending += self._rows_of_explored(unusable)

    def _rows_of_explored(self, ids: IntArray) -> list[IntArray]:
        """The dependencies of those `ids` whose dependencies are known, an array for each node.

        Ids that can never be computable are left out.
        """
        store = self.store
        ids = ids[(store.slots[ids] >= 0) & (store.status[ids] != NOT_COMPUTABLE)]
        rows = []
        for node, of_node in self.store.by_node(ids):
            rows.append(self.dependency_rows[node].take(store.slots[of_node]))
            if node in self._waiting:
                self._dirty.add(node)
        return rows

    # -- deciding: which cindexes can be computed

    def _decide(self) -> None:
        """Decide which explored cindexes are computable, where their dependencies have changed."""
        for node in reversed(self.plan.from_outputs):
            if node in self._dirty:
                self._dirty.discard(node)
                self._decide_node(node)

    def _decide_node(self, node: int) -> None:
        store = self.store
        if (batches := self._waiting.pop(node, None)) is None:
            return
        ids, rows = batches[0] if len(batches) == 1 else join_rows(batches)
        usable = store.usable[as_slice(ids)] > 0
        if not all_true(usable):
            self._waiting.setdefault(node, []).append((ids[~usable], rows[~usable]))
            ids, rows = ids[usable], rows[usable]
        if len(ids) == 0:
            return
        computable, hopeless = self._judge(node, ids, rows)
        if all_true(computable):
            store.status[as_slice(ids)] = COMPUTABLE
        else:
            store.status[ids[computable]] = COMPUTABLE
            if np.count_nonzero(hopeless):
                store.status[ids[hopeless]] = NOT_COMPUTABLE
                self._unwant(rows[hopeless])
            decided = computable | hopeless
            if not all_true(decided):
                self._waiting.setdefault(node, []).append((ids[~decided], rows[~decided]))
            if not np.count_nonzero(decided):
                return
        self._dirty.update(n for n in self.plan.consumers[node] if n in self._waiting)

    def _judge(self, node: int, ids: IntArray, rows: IntArray) -> tuple[BoolArray, BoolArray]:
        """Two arrays of flags (N,) for cindexes of a node: is computable; can never be computable.

        `ids` (N,) are the cindexes; rows[i] has the ids on which ids[i] depends, padded with -1.
        """
        store, rule = self.store, self.plan.rules[node]
        if rule.needs_all and rows.shape[1] == 1:
            status = store.status[as_slice(rows[:, 0])]
            return status == COMPUTABLE, status == NOT_COMPUTABLE
        status = store.status[rows]
        if rule.needs_all:
            return (status == COMPUTABLE).all(axis=1), (status == NOT_COMPUTABLE).any(axis=1)
        keys, row_keys = store.keys[as_slice(ids)], store.keys[rows]
        computable, _ = rule.used(keys, rows, row_keys, status == COMPUTABLE)
        if all_true(computable):
            return computable, ~computable
        possible, _ = rule.used(keys, rows, row_keys, status != NOT_COMPUTABLE)
        return computable, ~possible

    def prune(self) -> None:
        """Add inputs, and the cindexes that outputs use, to `graph`. Outputs must be computable."""
        if self._strict is not None:
            self._strict.finish(self.graph, self.store)
            self._strict = None
            return
        prune_segment(self.plan, self.graph, self.store, self.dependency_rows, self.segment_start)
