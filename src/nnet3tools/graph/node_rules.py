"""Rules of nodes (their dependencies, and when they can be computed), and the plan of a network.

A rule handles many cindexes of its node in one call. Dependencies are rows of cindex ids, shape
(N, width). In a descriptor's row, column i belongs to leaf i of its parts, in Kaldi's order. A
component's row holds its inputs, padded with -1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from nnet3tools.graph.computation_graph import all_true, sorted_unique
from nnet3tools.graph.epochs import consumers, node_epochs, visit_order
from nnet3tools.nnet.components.base import Component, Properties
from nnet3tools.nnet.descriptor import Descriptor, Joined, Leaf, SumDescriptor
from nnet3tools.nnet.forwarding import Forwarding, NodeTerm, Offset, ReplaceIndex
from nnet3tools.nnet.indexes import BoolArray, IntArray, KeyArray, pack, shift_time, unpack
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.nodes import ComponentNode, DescriptorNode, DimRangeNode

_TIMES_TRIED = (0, 1, 2, 3, 5, 7, 11, 64, 1000, -1)
"""Times of output rows at which a component is asked whether its inputs have fixed time offsets."""
_NO_INDEXES = np.empty((0, 3), np.int32)

AddCindexes = Callable[[int, KeyArray], IntArray]
"""(node, keys) -> ids: finds the cindexes of a node, and adds missing ones to the graph."""


class NodeRule:
    """How the cindexes of a node depend on cindexes of other nodes.

    `sources` are the nodes that it may depend on, sorted. This base class is the rule of an input
    node, which depends on nothing.
    """

    sources: tuple[int, ...] = ()
    has_fixed_times = False
    """Whether some dependency has the same time for all rows, such as an i-vector at t = 0."""
    needs_all = True
    """Whether each row needs, and uses, all of its dependencies."""
    is_strict = True
    """Whether each row needs all of its dependencies, of which all rows have equally many."""

    def time_shifts(self) -> list[tuple[int, int]] | None:
        """(node, time offset in frames) of each dependency that a row may have.

        None if a dependency has another n or x than the row, or no constant offset. The offset is 0
        for a dependency that is at time 0 for all rows, such as an i-vector.
        """
        return []

    def dependencies(self, keys: KeyArray, add: AddCindexes) -> IntArray:
        """Ids of the dependencies of N cindexes of this node, (N, width).

        `add(node, keys)` returns the ids of cindexes, making new ones where needed.
        """
        return np.empty((len(keys), 0), np.int32)

    def used(
        self,
        keys: KeyArray,
        dependencies: IntArray,
        dependency_keys: KeyArray,
        available: BoolArray,
    ) -> tuple[BoolArray, BoolArray]:
        """Which of N cindexes are computable, (N,), and the dependencies they use, (N, width).

        `keys` (N,) are packed Indexes of the cindexes. `dependencies` (N, width) are ids,
        `dependency_keys` their packed Indexes, `available` their flags: computable or not.
        """
        computable: BoolArray = np.all(available, axis=1)
        return computable, available & computable[:, None]


class SameIndexRule(NodeRule):
    """How most components, and dim-ranges, depend on their source: a row needs the same Index."""

    def __init__(self, source: int) -> None:
        self.sources = (source,)

    def dependencies(self, keys: KeyArray, add: AddCindexes) -> IntArray:
        return add(self.sources[0], keys)[:, None]

    def time_shifts(self) -> list[tuple[int, int]] | None:
        return [(self.sources[0], 0)]


class ComponentRule(NodeRule):
    """How some components depend on their input: the component lists the inputs of each row."""

    needs_all = False

    def __init__(self, source: int, component: Component) -> None:
        self.sources, self._component = (source,), component
        self.is_strict = type(component).computable is Component.computable

    def time_shifts(self) -> list[tuple[int, int]] | None:
        outputs = np.array([[0, t, 0] for t in _TIMES_TRIED], np.int32)
        inputs, offsets = self._component.input_indexes(outputs)
        counts = np.diff(offsets)
        if not all_true(counts == counts[0]):
            return None
        shifts = inputs.reshape(len(outputs), -1, 3) - outputs[:, None]
        if not all_true(shifts == shifts[0]) or shifts[:, :, [0, 2]].any():
            return None
        return [(self.sources[0], t) for t in shifts[0, :, 1].tolist()]

    def dependencies(self, keys: KeyArray, add: AddCindexes) -> IntArray:
        inputs, offsets = self._component.input_indexes(unpack(keys))
        ids = add(self.sources[0], pack(inputs)) if len(inputs) else np.empty(0, np.int32)
        counts = np.diff(offsets)
        width = int(counts.max(initial=0))
        if len(ids) == width * len(keys):
            return ids.reshape(len(keys), width)
        rows = np.full((len(keys), width), -1, np.int32)
        rows[np.arange(width) < counts[:, None]] = ids
        return rows

    def used(
        self,
        keys: KeyArray,
        dependencies: IntArray,
        dependency_keys: KeyArray,
        available: BoolArray,
    ) -> tuple[BoolArray, BoolArray]:
        present = dependencies >= 0
        offsets = np.zeros(len(keys) + 1, np.int32)
        np.cumsum(present.sum(axis=1), out=offsets[1:])
        computable, used = self._component.computable(
            unpack(keys), unpack(dependency_keys[present]), offsets, available[present]
        )
        spread = np.zeros(dependencies.shape, bool)
        spread[present] = used
        return computable, spread


class DescriptorRule(NodeRule):
    """How a descriptor node depends on other nodes: a row needs all of the descriptor's parts."""

    def __init__(self, descriptor: Descriptor) -> None:
        self._parts = descriptor.parts
        self.leaves = [leaf for part in descriptor.parts for leaf in part.leaves]
        """The descriptor's leaves, each of which is a dependency of every row."""
        self.sources = tuple(sorted(set(descriptor.nodes())))
        self.needs_all = self.is_strict = all(map(_needs_all, descriptor.parts))
        self._shifts = [_time_shift(leaf) for leaf in self.leaves]
        self.has_fixed_times = any(_node_at_time_0(leaf) is not None for leaf in self.leaves)

    @cached_property
    def answers(self) -> BoolArray:
        """Flags, (2 ** leaves,): for each set of available leaves, whether a row is computable.

        Bit i of a flag's position says that leaf i is available. The row's Index does not matter.
        """
        cases = np.arange(1 << len(self.leaves))
        available = (cases[:, None] >> np.arange(len(self.leaves)) & 1).astype(np.bool_)
        none = np.empty((len(cases), 0), np.int32)
        return self.used(cases, none, none.astype(np.int64), available)[0]

    def time_shifts(self) -> list[tuple[int, int]] | None:
        shifts = []
        for leaf, shift in zip(self.leaves, self._shifts, strict=True):
            if shift is None and (node := _node_at_time_0(leaf)) is not None:
                shift = node, 0
            if shift is None:
                return None
            shifts.append(shift)
        return shifts

    def dependencies(self, keys: KeyArray, add: AddCindexes) -> IntArray:
        rows = np.empty((len(keys), len(self.leaves)), np.int32)
        of_node: dict[int, tuple[list[int], list[KeyArray]]] = {}
        indexes = unpack(keys) if None in self._shifts else _NO_INDEXES
        for column, (leaf, shift) in enumerate(zip(self.leaves, self._shifts, strict=True)):
            if shift is not None:
                node, mapped = shift[0], shift_time(keys, shift[1])
            else:
                nodes, wanted = leaf.map_to_input(indexes)
                mapped = pack(wanted)
                if (several := nodes[:1].tolist()) and not all_true(nodes == several[0]):
                    self._add_switched(rows, column, nodes, mapped, add)
                    continue
                node = several[0] if several else self.sources[0]
            columns, of_columns = of_node.setdefault(node, ([], []))
            columns.append(column)
            of_columns.append(mapped)
        for node, (columns, of_columns) in of_node.items():
            if len(columns) == 1:
                rows[:, columns[0]] = add(node, of_columns[0])
            else:
                ids = add(node, np.concatenate(of_columns))
                rows[:, columns] = ids.reshape(len(columns), len(keys)).T
        return rows

    @staticmethod
    def _add_switched(
        rows: IntArray, column: int, nodes: IntArray, keys: KeyArray, add: AddCindexes
    ) -> None:
        for node in sorted_unique(nodes).tolist():
            chosen = nodes == node
            rows[chosen, column] = add(node, keys[chosen])

    def used(
        self,
        keys: KeyArray,
        dependencies: IntArray,
        dependency_keys: KeyArray,
        available: BoolArray,
    ) -> tuple[BoolArray, BoolArray]:
        computable = np.ones(len(keys), bool)
        used = np.empty(available.shape, bool)
        start = 0
        for part in self._parts:
            end = start + len(part.leaves)
            columns = [available[:, i] for i in range(start, end)]
            part_computable, part_used = part.combine(len(keys), columns)
            computable &= part_computable
            for i, of_leaf in enumerate(part_used):
                used[:, start + i] = of_leaf
            start = end
        return computable, used & computable[:, None]


def _needs_all(part: SumDescriptor) -> bool:
    """Whether a row needs all leaves of a descriptor's part (no IfDefined, no Failover)."""
    match part:
        case Joined(operator, terms):
            return operator == "Sum" and all(map(_needs_all, terms))
        case Leaf():
            return True
    return len(part.leaves) == 0


def _time_shift(leaf: Forwarding) -> tuple[int, int] | None:
    """(node, time offset) of a descriptor's leaf that reads a node with an offset; else None."""
    frames = 0
    while isinstance(leaf, Offset) and leaf.x == 0:
        frames += leaf.t
        leaf = leaf.source
    return (leaf.node, frames) if isinstance(leaf, NodeTerm) else None


def _node_at_time_0(leaf: Forwarding) -> int | None:
    """The node that a descriptor's leaf reads at time 0 for all rows; None for other leaves."""
    match leaf:
        case ReplaceIndex(NodeTerm(node), "t", 0):
            return node
    return None


def make_rule(nnet: Nnet, node: int) -> NodeRule:
    """The NodeRule of a node: on which cindexes of other nodes its cindexes depend."""
    match nnet.nodes[node]:
        case DescriptorNode(descriptor):
            return DescriptorRule(descriptor)
        case DimRangeNode(source):
            return SameIndexRule(source)
        case ComponentNode(component_index):
            component = nnet.components[component_index]
            flags, cls = component.properties, type(component)
            # A component may lack SIMPLE only because it precomputes indexes.
            is_plain = cls.input_indexes is Component.input_indexes
            is_plain &= cls.computable is Component.computable
            if flags & Properties.SIMPLE or (is_plain and not flags & Properties.REORDERS_INDEXES):
                return SameIndexRule(node - 1)
            return ComponentRule(node - 1, component)
    return NodeRule()


class NetworkPlan:
    """Facts about a network for building graphs: each node's dependencies, and the order of nodes.

    The network must not change afterwards.
    """

    def __init__(self, nnet: Nnet) -> None:
        self.nnet = nnet
        self.rules = [make_rule(nnet, node) for node in range(nnet.num_nodes)]
        self.consumers = consumers(nnet)
        self.epochs = node_epochs(self.consumers)
        """Epoch of each node, from 0; a recurrence is one epoch."""
        inputs = [list(rule.sources) for rule in self.rules]
        self.from_outputs = visit_order(inputs, nnet.output_nodes())
        """The nodes that outputs need, each before its sources except in recurrences."""
        position = {node: i for i, node in enumerate(self.from_outputs)}
        edges = [(node, source) for node in position for source in inputs[node]]
        self.back_edges = frozenset(
            (node, source) for node, source in edges if position[source] < position[node]
        )
        """(node, source) of the dependencies against that order; they close recurrences."""
        self.input_nodes = frozenset(nnet.input_nodes())
