"""A fast path for graphs in which every cindex is computable and needs all of its dependencies.

Feed-forward networks with complete context have such graphs. No status has to be decided, and
nothing is pruned. The cindexes of a node are known when all of its consumers are done, so one pass
over the nodes finds the graph, with far fewer calls than the general path (builder.py, pruning.py).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import RequestError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.graph.computation_graph import (
    CindexStore,
    ComputationGraph,
    DependencyRows,
    all_true,
    sorted_unique,
)
from nnet3tools.graph.node_rules import NetworkPlan
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.nnet.indexes import BoolArray, IntArray, KeyArray, pack

_NONE: list[KeyArray] = [np.empty(0, np.int64)]


class _NotStrictError(Exception):
    """A dependency is optional or missing, so the fast method cannot build this graph."""


@dataclass(frozen=True, slots=True)
class StrictGraph:
    """The graph of a request in which all dependencies of all cindexes are needed and computable.

    `keys` (packed Indexes), `nodes` and `is_input` are by cindex id, as in the pruned
    ComputationGraph. `node_ranges` are (node, first id, end), `widths` the number of dependencies
    of each cindex in a range, and `terms` the ids of all dependencies, cindex by cindex.
    """

    node_ranges: list[tuple[int, int, int]]
    keys: KeyArray
    nodes: IntArray
    is_input: BoolArray
    terms: IntArray
    widths: list[int]

    def fill(
        self, graph: ComputationGraph, store: CindexStore, dependency_rows: list[DependencyRows]
    ) -> None:
        """Put all cindexes of this graph, with their dependencies, into a GraphBuilder's tables."""
        store.restart(0, self.keys, self.nodes, self.is_input)
        ids = np.arange(store.size, dtype=np.int32)
        begin = 0
        for (node, first, end), width in zip(self.node_ranges, self.widths, strict=True):
            table = graph.tables[node]
            table.keys, table.ids = self.keys[first:end], ids[first:end]
            if not self.is_input[first]:
                store.slots[first:end] = ids[: end - first]
                rows = self.terms[begin : begin + width * (end - first)]
                dependency_rows[node].append(rows.reshape(end - first, width))
                begin += width * (end - first)

    def finish(self, graph: ComputationGraph, store: CindexStore) -> None:
        """Append this graph to `graph` as its first segment; put its cindexes into `store`."""
        counts = [end - first for _, first, end in self.node_ranges]
        graph.nodes, graph.keys, graph.is_input = self.nodes, self.keys, self.is_input
        graph.terms = self.terms
        graph.offsets = np.zeros(len(self.keys) + 1, np.int64)
        np.cumsum(np.repeat(self.widths, counts), out=graph.offsets[1:])
        graph.segment_ends.append(len(self.keys))
        graph.node_ranges.append(self.node_ranges)
        store.restart(0, self.keys, self.nodes, self.is_input)


def strict_graph(plan: NetworkPlan, request: ComputationRequest) -> StrictGraph | None:
    """The graph of a request; None if a dependency is optional or missing, or there is a cycle."""
    try:
        return _Explorer(plan, request).explored()
    except (_NotStrictError, RequestError):  # the general path finds the RequestError, too
        return None


class _Explorer:
    """Builds a StrictGraph: visits each node of the network once, before its source nodes.

    A visited node requests the rows (cindexes) of its sources on which its own rows depend. All
    requested rows of all nodes are numbered from 0, in the order of the requests. Dependencies in
    `_rows` are such numbers; at the end `_ids` maps them to cindex ids.
    """

    def __init__(self, plan: NetworkPlan, request: ComputationRequest) -> None:
        self._plan = plan
        self._keys: dict[int, KeyArray] = {}
        """The rows of each visited node, sorted."""
        self._asked: dict[int, list[KeyArray]] = {}
        """`_asked[node]`: the rows of the node that were requested, an array for each request."""
        self._turns: list[tuple[int, int, int]] = []
        """For each request: the node, and the request's range among the node's requested rows."""
        self._num_of_node: dict[int, int] = {}
        self._num_asked = 0
        self._rows: dict[int, IntArray] = {}
        self._given = _keys_by_node(plan, request.inputs)
        self._wanted = _keys_by_node(plan, request.outputs)

    def explored(self) -> StrictGraph:
        """The graph; _NotStrictError if a dependency is optional or missing, or for a cycle."""
        if not self._plan.input_nodes.issuperset(self._given):
            raise _NotStrictError
        for node in self._plan.from_outputs:
            keys = self._wanted[node] if node in self._wanted else self._keys_asked(node)
            if len(keys):
                self._explore(node, keys)
        self._keys.update((node, keys) for node, keys in self._given.items() if len(keys))
        return self._numbered()

    def _keys_asked(self, node: int) -> KeyArray:
        asked = self._asked.get(node, _NONE)
        return sorted_unique(asked[0] if len(asked) == 1 else np.concatenate(asked))

    def _explore(self, node: int, keys: KeyArray) -> None:
        rule = self._plan.rules[node]
        self._keys[node] = keys
        if node in self._plan.input_nodes:
            given = self._given.get(node)
            if given is None or not _contains(given, keys):
                raise _NotStrictError
            return
        if not rule.is_strict:
            raise _NotStrictError
        self._rows[node] = rule.dependencies(keys, self._ask)

    def _ask(self, node: int, keys: KeyArray) -> IntArray:
        if node in self._keys:  # the node was visited before: the network is recurrent
            raise _NotStrictError
        self._asked.setdefault(node, []).append(keys)
        begin = self._num_of_node.get(node, 0)
        self._num_of_node[node] = end = begin + len(keys)
        self._turns.append((node, begin, end))
        first = self._num_asked
        self._num_asked += len(keys)
        return np.arange(first, self._num_asked, dtype=np.int32)

    def _numbered(self) -> StrictGraph:
        nodes = sorted(self._keys)
        ends = np.cumsum([len(self._keys[node]) for node in nodes]).tolist()
        firsts = [0, *ends[:-1]]
        ids = self._ids(dict(zip(nodes, firsts, strict=True)))
        of_nodes = [self._rows[node] for node in nodes if node in self._rows]
        terms = np.concatenate([rows.ravel() for rows in of_nodes])
        counts = [end - first for first, end in zip(firsts, ends, strict=True)]
        return StrictGraph(
            list(zip(nodes, firsts, ends, strict=True)),
            np.concatenate([self._keys[node] for node in nodes]),
            np.repeat(np.array(nodes, np.int32), counts),
            np.repeat([node in self._given for node in nodes], counts),
            ids[terms],
            [self._rows[node].shape[1] if node in self._rows else 0 for node in nodes],
        )

    def _ids(self, first_of: dict[int, int]) -> IntArray:
        """The cindex id of each requested row of all nodes, in order of requests; at the end, -1.

        `first_of` has the first id of each node.
        """
        of_node: dict[int, NDArray[np.integer]] = {}
        for node, asked in self._asked.items():
            if self._num_of_node[node] == 0:
                of_node[node] = np.empty(0, np.int64)
                continue
            keys, first = self._keys[node], first_of[node]
            if len(asked) == 1 and asked[0] is keys:
                of_node[node] = np.arange(first, first + len(keys))
            else:
                all_asked = asked[0] if len(asked) == 1 else np.concatenate(asked)
                of_node[node] = keys.searchsorted(all_asked) + first
        parts = [of_node[node][begin:end] for node, begin, end in self._turns]
        return np.concatenate([*parts, np.array([-1])]).astype(np.int32)


def _keys_by_node(plan: NetworkPlan, specs: list[IoSpecification]) -> dict[int, KeyArray]:
    """Node number -> sorted keys (packed Indexes) of the requested inputs or outputs `specs`."""
    return {plan.nnet.node_index(spec.name): np.sort(pack(spec.indexes)) for spec in specs}


def _contains(keys: KeyArray, some: KeyArray) -> bool:
    """Whether the sorted array `keys` contains all elements of the sorted array `some`."""
    places = keys.searchsorted(some)
    return int(places[-1]) < len(keys) and all_true(keys[places] == some)
