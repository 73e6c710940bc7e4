"""Dependencies of cindexes for the replay of Kaldi's graph search.

Kaldi explores a recurrence into the past until it finds that nothing there can be computed.
GraphBuilder stops earlier. `SearchFacts` finds the dependencies of the cindexes that GraphBuilder
did not explore, for all cindexes of a node in one call.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nnet3tools.graph.builder import GraphBuilder
from nnet3tools.graph.computation_graph import KeyTable, sorted_unique
from nnet3tools.nnet.indexes import BoolArray, IntArray, KeyArray, repeated_beyond

_STEPS_AHEAD = 16
"""Steps of a recurrence to add ahead; Kaldi's search of an LSTM explores about as many."""
_EVER = 1 << 26
"""A time beyond the frames of all requests."""


class Found(NamedTuple):
    """Cindexes `ids` of one node and their dependencies, ids `rows` (ids, width) padded with -1.

    `new_nodes` are the nodes of those dependencies that are new, with the next free ids in order.
    """

    ids: IntArray
    rows: IntArray
    new_nodes: IntArray


class SearchFacts:
    """Nodes and dependencies of the cindexes of a GraphBuilder, and of cindexes added later."""

    def __init__(self, builder: GraphBuilder) -> None:
        store = builder.store
        self._rules, self._back_edges = builder.plan.rules, builder.plan.back_edges
        self.num_cindexes = store.size
        self._nodes, self._keys = store.nodes[: store.size], store.keys[: store.size]
        self._explored = store.slots[: store.size] >= 0
        self._builders_tables = builder.graph.tables
        self._tables: dict[int, KeyTable] = {}
        """Tables of the nodes whose dependencies were found here."""
        self._unasked: dict[int, list[IntArray]] = {}
        """`_unasked[node]`: cindexes of the node whose dependencies are not known yet."""
        self._new_nodes: list[IntArray] = []
        self._asking = -1
        """The node whose dependencies `dependencies` is finding."""

    def node(self, cindex: int) -> int:
        """The node of a cindex."""
        return int(self._nodes[cindex])

    def dependencies(self, cindex: int) -> Found:
        """Find the dependencies of all cindexes of this one's node that still lack them."""
        node = self.node(cindex)
        self._table(node)
        unasked = self._unasked[node]
        ids = unasked[0] if len(unasked) == 1 else np.concatenate(unasked)
        self._unasked[node], self._new_nodes, self._asking = [ids[:0]], [], node
        rows = self._rules[node].dependencies(self._keys[ids], self._ids)
        new_nodes = np.concatenate([ids[:0], *self._new_nodes])
        return Found(ids, np.ascontiguousarray(rows, np.int32), new_nodes)

    def is_computable(self, cindex: int, row: IntArray, available: BoolArray) -> bool:
        """Whether a cindex with dependencies `row` (ids) is computable from `available` ones."""
        rule = self._rules[self.node(cindex)]
        keys, row_keys = self._keys[[cindex]], self._keys[row]
        return bool(rule.used(keys, row[None], row_keys[None], available[None])[0][0])

    def _table(self, node: int) -> KeyTable:
        """The KeyTable (key -> id) of a node; the first call copies it from the GraphBuilder."""
        if (table := self._tables.get(node)) is None:
            builders = self._builders_tables[node]
            table = self._tables[node] = KeyTable()
            table.keys, table.ids = builders.keys, builders.ids
            self._unasked[node] = [table.ids[~self._explored[table.ids]]]
        return table

    def _ids(self, node: int, keys: KeyArray) -> IntArray:
        """The ids of a node's cindexes, given as packed Indexes; new ones get the next free ids."""
        table = self._table(node)
        ids = table.find(keys)
        missing = ids < 0
        if not missing.any():
            return ids
        new, first = sorted_unique(keys[missing]), self.num_cindexes
        if (self._asking, node) in self._back_edges:
            further = repeated_beyond(table.keys, new, -_EVER, _EVER, _STEPS_AHEAD)
            new = np.sort(np.concatenate([new, further]))
        table.insert(new, first)
        self.num_cindexes += len(new)
        new_nodes = np.full(len(new), node, np.int32)
        self._new_nodes.append(new_nodes)
        self._nodes = np.concatenate([self._nodes, new_nodes])
        self._keys = np.concatenate([self._keys, new])
        self._unasked[node].append(np.arange(first, self.num_cindexes, dtype=np.int32))
        return table.find(keys)
