"""ComputationGraph: which cindexes a computation has, and what each depends on, as arrays.

A cindex is a (node, Index) pair, one row of some matrix; a cindex id is its number. Ids are ordered
by segment (one a request), then node, then Index in Kaldi's order, so that the cindexes of a node
in one segment are a range of ids, sorted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.graph.tables import KeyTable, as_slice
from nnet3tools.nnet.indexes import BoolArray, IndexArray, IntArray, KeyArray, pack, unpack


@dataclass
class ComputationGraph:
    """Pruned graph: the N cindexes that a computation needs, and the dependencies of each.

    `nodes`, `keys` (packed Indexes) and `is_input` (whether the request gives it) are by cindex id;
    `tables` find the ids of a node's Indexes. Cindex i depends on the ids
    terms[offsets[i]:offsets[i + 1]]; in a descriptor they are one for each leaf, -1 if not used.
    `segment_ends` are one past the last id of each segment. For each segment, `node_ranges` has
    (node, first id, end) of the nodes with cindexes, by node.
    """

    tables: list[KeyTable]
    nodes: IntArray = field(default_factory=lambda: np.empty(0, np.int32))
    keys: KeyArray = field(default_factory=lambda: np.empty(0, np.int64))
    is_input: BoolArray = field(default_factory=lambda: np.empty(0, bool))
    offsets: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    terms: IntArray = field(default_factory=lambda: np.empty(0, np.int32))
    segment_ends: list[int] = field(default_factory=list)
    node_ranges: list[list[tuple[int, int, int]]] = field(default_factory=list)

    @property
    def num_cindexes(self) -> int:
        """Number of cindexes in the graph."""
        return len(self.nodes)

    def indexes(self, ids: IntArray) -> IndexArray:
        """The Index of each id, (N, 3)."""
        return unpack(self.keys[ids])

    def find(self, node: int, indexes: IndexArray) -> IntArray:
        """The id of each (node, Index), -1 if the graph does not contain it."""
        return self.tables[node].find(pack(indexes))

    def dependencies(self, ids: IntArray) -> IntArray:
        """Ids that cindexes of one node and segment depend on, (N, width); all -1 for the id -1."""
        if len(ids) == 0:
            return np.empty((0, 0), np.int32)
        some = int(ids.max())
        if some < 0:
            return np.empty((len(ids), 0), np.int32)
        width = int(self.offsets[some + 1] - self.offsets[some])
        at = as_slice(ids)
        if isinstance(at, slice) and at.start >= 0:
            start = int(self.offsets[at.start])
            return self.terms[start : start + width * len(ids)].reshape(len(ids), width)
        absent = ids < 0
        starts = np.where(absent, 0, self.offsets[ids])
        rows = self.terms[starts[:, None] + np.arange(width)]
        rows[absent] = -1
        return rows
