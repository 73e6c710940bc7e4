"""The computation graph, and the tables of cindexes and dependencies that it is built from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.nnet.indexes import (
    BoolArray,
    IndexArray,
    IntArray,
    KeyArray,
    all_true,
    is_increasing,
    pack,
    sorted_unique,
    unpack,
)

UNKNOWN, COMPUTABLE, NOT_COMPUTABLE = 0, 1, 2
"""Status of a cindex while the graph is built. (Kaldi's fourth, "will not compute", is a cindex
that is unknown and not usable when building ends.)"""


def add_counts(target: NDArray[np.integer], places: NDArray[np.integer], amount: int) -> None:
    """Add `amount` to target[i] for each occurrence of i in `places`."""
    # With a scalar of another dtype, ufunc.at is more than ten times slower.
    np.add.at(target, places, target.dtype.type(amount))


def as_slice(ids: IntArray) -> slice | IntArray:
    """Consecutive ids as a slice, which makes copying several times faster; other ids unchanged."""
    if len(ids):
        first, last = int(ids[0]), int(ids[-1])
        if last - first + 1 == len(ids) and (last == first or is_increasing(ids)):
            return slice(first, last + 1)
    return ids


def present_ids(rows: IntArray) -> IntArray:
    """The ids in rows of dependencies, flat, without the padding (-1)."""
    ids = rows.ravel()
    return ids if len(ids) == 0 or ids.min() >= 0 else ids[ids >= 0]


def join_rows(batches: list[tuple[IntArray, IntArray]]) -> tuple[IntArray, IntArray]:
    """Pairs (ids, rows of dependencies) joined to one pair; narrower rows are padded with -1."""
    width = max(rows.shape[1] for _, rows in batches)
    ids = np.concatenate([ids for ids, _ in batches])
    padded = [
        rows
        if rows.shape[1] == width
        else np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=-1)
        for _, rows in batches
    ]
    return ids, np.concatenate(padded)


def concatenated_ranges(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers start, start + 1, ... of every range, one range after the other."""
    if len(starts) == 1:
        return np.arange(int(starts[0]), int(starts[0]) + int(lengths[0]))
    ends = lengths.cumsum()
    numbers = np.arange(int(ends[-1]) if len(ends) else 0)
    numbers += (starts - ends + lengths).repeat(lengths)
    return numbers


class KeyTable:
    """The ids of one node's cindexes by key (packed Index); keys are in increasing order."""

    __slots__ = ("ids", "keys")

    def __init__(self) -> None:
        self.keys: KeyArray = np.empty(0, np.int64)
        self.ids: IntArray = np.empty(0, np.int32)

    def find(self, keys: KeyArray) -> IntArray:
        """The id of each key, -1 where it is absent."""
        mine = self.keys
        if len(keys) == len(mine) and all_true(keys == mine):
            return self.ids
        if len(mine) == 0:
            return np.full(len(keys), -1, np.int32)
        places = mine.searchsorted(keys)
        places[places == len(mine)] = 0
        found = mine[places] == keys
        ids = self.ids[places]
        if not all_true(found):
            ids[~found] = -1
        return ids

    def insert(self, keys: KeyArray, first_id: int) -> None:
        """Add new keys, in increasing order, with the ids first_id, first_id + 1 ..."""
        ids = np.arange(first_id, first_id + len(keys), dtype=np.int32)
        if len(self.keys) == 0:
            self.keys, self.ids = keys, ids
            return
        if keys[0] > self.keys[-1]:
            self.keys = np.concatenate([self.keys, keys])
            self.ids = np.concatenate([self.ids, ids])
            return
        if keys[-1] < self.keys[0]:
            self.keys = np.concatenate([keys, self.keys])
            self.ids = np.concatenate([ids, self.ids])
            return
        size = len(self.keys) + len(keys)
        places = np.searchsorted(self.keys, keys) + np.arange(len(keys))
        old = np.ones(size, bool)
        old[places] = False
        merged_keys, merged_ids = np.empty(size, np.int64), np.empty(size, np.int32)
        merged_keys[places], merged_keys[old] = keys, self.keys
        merged_ids[places], merged_ids[old] = ids, self.ids
        self.keys, self.ids = merged_keys, merged_ids


class CindexStore:
    """GraphBuilder's data about each cindex: arrays, by cindex id, that grow by doubling."""

    __slots__ = ("is_input", "keys", "nodes", "size", "slots", "status", "usable")

    def __init__(self) -> None:
        self.size = 0
        self.keys: KeyArray = np.empty(0, np.int64)
        self.nodes: IntArray = np.empty(0, np.int32)
        self.status: NDArray[np.int8] = np.empty(0, np.int8)
        self.usable: IntArray = np.empty(0, np.int32)
        self.slots: IntArray = np.empty(0, np.int32)
        """Place of the cindex's row in its node's DependencyRows; -1 if it is not explored."""
        self.is_input: BoolArray = np.empty(0, bool)

    def add(self, node: int, keys: KeyArray, status: int) -> int:
        """Add cindexes of a node with packed Indexes `keys`; return the first of successive ids.

        `status` is UNKNOWN, COMPUTABLE or NOT_COMPUTABLE. No cindex depends on the new ones yet.
        """
        first, end = self.size, self.size + len(keys)
        if end > len(self.keys):
            self._grow(max(end, 2 * len(self.keys), 1024))
        self.keys[first:end] = keys
        self.nodes[first:end] = node
        self.status[first:end] = status
        self.usable[first:end] = 0
        self.slots[first:end] = -1
        self.is_input[first:end] = False
        self.size = end
        return first

    def by_node(self, ids: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Yield (node, its ids) for each node of the ids."""
        nodes = self.nodes[ids]
        if len(ids) and all_true(nodes == nodes[0]):
            yield int(nodes[0]), ids
            return
        for node in sorted_unique(nodes).tolist():
            yield node, ids[nodes == node]

    def restart(self, first: int, keys: KeyArray, nodes: IntArray, is_input: BoolArray) -> None:
        """Replace ids from `first` on by cindexes (nodes[i], packed Index keys[i]), COMPUTABLE."""
        self.size = first
        end = first + len(keys)
        if end > len(self.keys):
            self._grow(end)
        self.keys[first:end], self.nodes[first:end] = keys, nodes
        self.is_input[first:end] = is_input
        self.status[first:end] = COMPUTABLE
        self.usable[first:end] = 1
        self.slots[first:end] = -1
        self.size = end

    def _grow(self, capacity: int) -> None:
        for name in ("keys", "nodes", "status", "usable", "slots", "is_input"):
            old = getattr(self, name)
            new = np.empty(capacity, old.dtype)
            new[: self.size] = old[: self.size]
            setattr(self, name, new)


class DependencyRows:
    """The dependencies of one node's cindexes: rows of ids, padded with -1; grows by doubling."""

    __slots__ = ("_rows", "size")

    def __init__(self) -> None:
        self._rows: IntArray = np.empty((0, 0), np.int32)
        self.size = 0

    def append(self, rows: IntArray) -> None:
        """Append N rows of dependencies (cindex ids); their width may differ from earlier rows'."""
        if self.size == 0:
            self._rows, self.size = rows, len(rows)
            return
        end = self.size + len(rows)
        width = max(self._rows.shape[1], rows.shape[1])
        if end > len(self._rows) or width > self._rows.shape[1]:
            grown = np.full((max(end, 2 * self.size), width), -1, np.int32)
            grown[: self.size, : self._rows.shape[1]] = self._rows[: self.size]
            self._rows = grown
        self._rows[self.size : end, : rows.shape[1]] = rows
        self._rows[self.size : end, rows.shape[1] :] = -1
        self.size = end

    def all(self) -> IntArray:
        """All rows, (N, width)."""
        return self._rows[: self.size]

    def take(self, slots: IntArray) -> IntArray:
        """The dependency rows with the numbers `slots`, as one array (N, width)."""
        if (
            len(slots) == self.size
            and (slots[0] if len(slots) else 0) == 0
            and is_increasing(slots)
        ):
            return self._rows[: self.size]
        return self._rows[slots]


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
        """Ids that cindexes of one node and request depend on, (N, width); all -1 for the id -1."""
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
