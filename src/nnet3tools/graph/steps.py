"""Steps: the matrices of a computation, in the order in which they are computed.

A step is a set of rows of one node that are computed together (Kaldi's ComputationStepsComputer).
Each input and output is one step, with its rows in the request's order. A component's step follows
the step of the component's input directly. A dim-range step has the rows of its source's step.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

import numpy as np

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.graph.computation_graph import (
    ComputationGraph,
    all_true,
    is_increasing,
    present_ids,
    sorted_unique,
)
from nnet3tools.graph.node_rules import NetworkPlan, SameIndexRule
from nnet3tools.graph.phases import find_phases
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.nnet.components.base import Component, Properties
from nnet3tools.nnet.indexes import IndexArray, IntArray, unpack
from nnet3tools.nnet.nodes import ComponentNode, DescriptorNode, DimRangeNode


@dataclass(slots=True)
class Step:
    """Rows of one node that are computed together, in one matrix.

    `ids` (rows,) are cindex ids, -1 for padding and for rows of a dim-range that are not used.
    `indexes` (rows, 3) has t = NO_TIME for padding. `segment` is the request's number. `is_input`:
    the request gives these rows. `source` is the step of which a dim-range is a range of columns.
    """

    node: int
    segment: int
    ids: IntArray
    indexes: IndexArray
    is_input: bool = False
    source: int = -1


@dataclass
class Steps:
    """The steps of a computation; cindex i is in step step_of[i], row row_of[i]."""

    steps: list[Step]
    step_of: IntArray
    """Step of each cindex, (N + 1,); the last entry, -1, is for id -1. If a cindex is in several
    steps, as inputs of components may be, it is one of them."""
    row_of: IntArray
    """Row of each cindex in that step, (N + 1,)."""


_NO_INDEXES: IndexArray = np.empty((0, 3), np.int32)


class _SimpleRows(NamedTuple):
    """All rows of one node in one segment, with ids first, first + 1, ...

    Row i depends on one cindex, `input_ids[i]`. `indexes` is empty for a dim-range.
    """

    first: int
    indexes: IndexArray
    input_ids: IntArray

    def positions(self, ids: IntArray) -> slice | IntArray:
        """Positions of increasing `ids` among these rows; a slice if the ids are consecutive."""
        first, last = int(ids[0]), int(ids[-1])
        if last - first + 1 == len(ids):
            return slice(first - self.first, last + 1 - self.first)
        return ids - self.first


class _Builder:
    def __init__(self, plan: NetworkPlan, graph: ComputationGraph) -> None:
        self.plan, self.nnet, self.graph = plan, plan.nnet, graph
        self.steps: list[Step] = []
        self.step_of = np.full(graph.num_cindexes + 1, -1, np.int32)
        self._segment = 0
        self._have_dim_range: set[tuple[int, int]] = set()
        self._simple_rows: dict[int, _SimpleRows] = {}

    def add_segment(self, segment: int, request: ComputationRequest) -> None:
        self._segment = segment
        self._simple_rows = self._rows_of_simple_nodes()
        for node, ids in chain.from_iterable(find_phases(self.plan, self.graph, segment)):
            match self.nnet.nodes[node]:
                case ComponentNode(component_index) if not self.graph.is_input[ids[0]]:
                    if (rows := self._simple_rows.get(node)) is not None:
                        of_node = rows.positions(ids)
                        indexes, input_ids = rows.indexes[of_node], rows.input_ids[of_node]
                        self._add(node - 1, input_ids, indexes)
                        self._add(node, ids, indexes)
                    else:
                        self._add_component(node, ids, self.nnet.components[component_index])
                case DimRangeNode():
                    self._add_dim_ranges(node, ids)
                case DescriptorNode() if not self.nnet.is_output(node):
                    pass  # added together with the step of its component
                case _:
                    self._add_requested(node, request)

    def _add(self, node: int, ids: IntArray, indexes: IndexArray, is_input: bool = False) -> None:
        self.step_of[ids] = len(self.steps)
        self.steps.append(Step(node, self._segment, ids, indexes, is_input))

    def _rows_of_simple_nodes(self) -> dict[int, _SimpleRows]:
        """For each node with a SameIndexRule, its rows in this segment."""
        graph, rows_of_node = self.graph, {}
        for node, first, end in graph.node_ranges[self._segment]:
            if not isinstance(self.plan.rules[node], SameIndexRule) or graph.is_input[first]:
                continue
            begin = int(graph.offsets[first])
            inputs = graph.terms[begin : begin + end - first]
            is_component = isinstance(self.nnet.nodes[node], ComponentNode)
            indexes = unpack(graph.keys[first:end]) if is_component else _NO_INDEXES
            rows_of_node[node] = _SimpleRows(first, indexes, inputs)
        return rows_of_node

    def _add_requested(self, node: int, request: ComputationRequest) -> None:
        name = self.nnet.node_names[node]
        is_output = self.nnet.is_output(node)
        spec = request.find_output(name) if is_output else request.find_input(name)
        assert spec is not None
        ids = self.graph.find(node, spec.indexes)
        self._add(node, ids, spec.indexes, is_input=not is_output)

    def _add_component(self, node: int, ids: IntArray, component: Component) -> None:
        """Add the steps of a component with a ComponentRule (cindexes `ids`), and of its input."""
        graph = self.graph
        indexes = graph.indexes(ids)
        input_ids = graph.dependencies(ids).ravel()
        input_ids = sorted_unique(present_ids(input_ids))
        keys = graph.keys[input_ids]
        if not is_increasing(keys):  # others are of an earlier segment
            order = np.argsort(keys, kind="stable")
            input_ids, keys = input_ids[order], keys[order]
        input_indexes = unpack(keys)
        if component.properties & Properties.REORDERS_INDEXES:
            ordered = component.reorder_indexes(input_indexes, indexes)
            self._add_ordered(node - 1, input_ids, input_indexes, ordered[0])
            self._add_ordered(node, ids, indexes, ordered[1])
        else:
            self._add(node - 1, input_ids, input_indexes)
            self._add(node, ids, indexes)

    def _add_ordered(
        self, node: int, ids: IntArray, indexes: IndexArray, ordered: IndexArray
    ) -> None:
        """Add a step with rows `ordered`: `indexes`, which are those of `ids`, sorted or padded."""
        if not np.array_equal(ordered, indexes):
            ids = self.graph.find(node, ordered)
        self._add(node, ids, ordered)

    def _add_dim_ranges(self, node: int, ids: IntArray) -> None:
        """Add a dim-range step for each step of the node's source that has some rows of `ids`."""
        rows = self._simple_rows[node]
        input_ids = rows.input_ids[rows.positions(ids)]
        first = int(self.step_of[input_ids[0]])
        whole = self.steps[first].ids
        if len(whole) == len(ids) and all_true(whole == input_ids):
            self._add_dim_range(node, ids, first)
            return
        for source in sorted_unique(self.step_of[input_ids]).tolist():
            if (source, node) not in self._have_dim_range:
                found = self.graph.find(node, self.steps[source].indexes)
                self._add_dim_range(node, found, source)

    def _add_dim_range(self, node: int, ids: IntArray, source: int) -> None:
        self._have_dim_range.add((source, node))
        self._add(node, ids, self.steps[source].indexes)
        self.steps[-1].source = source


def compute_steps(
    plan: NetworkPlan, graph: ComputationGraph, requests: list[ComputationRequest]
) -> Steps:
    """The steps (rows computed together) of a pruned graph; segment i is for requests[i]."""
    builder = _Builder(plan, graph)
    for segment, request in enumerate(requests):
        builder.add_segment(segment, request)
    builder.step_of[-1] = -1
    row_of = np.full_like(builder.step_of, -1)
    ids = [step.ids for step in builder.steps]
    # As in `step_of`, a cindex's last step stays.
    row_of[np.concatenate(ids)] = np.concatenate([np.arange(len(i)) for i in ids])
    row_of[-1] = -1
    return Steps(builder.steps, builder.step_of, row_of)
