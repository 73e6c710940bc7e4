"""From steps to matrices: where each step's value and derivative live, and what its rows sum.

Kaldi's Compiler::ComputeDerivNeeded, CreateStepInfo and ComputeInputLocationsList in
nnet-compile.cc, with the same numbering of matrices and submatrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from nnet3tools.compiler.node_facts import NodeFacts
from nnet3tools.graph.computation_graph import ComputationGraph
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.graph.steps import Step, Steps
from nnet3tools.graph.tables import all_true, sorted_unique
from nnet3tools.nnet.components.base import Properties, UpdatableComponent
from nnet3tools.nnet.indexes import IntArray
from nnet3tools.nnet.nodes import DimRangeNode
from nnet3tools.program.computation import Computation

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet

__all__ = ["Locations", "StepInfo", "create_step_infos"]

_NO_ID = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True)
class Locations:
    """What the rows of one part of a descriptor sum: (rows, terms) arrays, -1 for no term.

    The terms of a row are in the order of their cindexes, the padding last.
    """

    steps: IntArray
    rows: IntArray


@dataclass(slots=True)
class StepInfo:
    """A step with its submatrices; 0 stands for none."""

    step: Step
    facts: NodeFacts
    value: int = 0
    deriv: int = 0
    value_parts: list[int] = field(default_factory=list)
    """For a descriptor one submatrix a part."""
    deriv_parts: list[int] = field(default_factory=list)
    locations: list[Locations] = field(default_factory=list)
    """For a descriptor one entry a part."""
    precomputed: int = 0
    """Number of its precomputed indexes in the program."""


def create_step_infos(
    nnet: Nnet,
    graph: ComputationGraph,
    steps: Steps,
    requests: Sequence[ComputationRequest],
    facts: Sequence[NodeFacts],
    computation: Computation,
) -> list[StepInfo]:
    """Declare the matrices of all steps in `computation`."""
    infos: list[StepInfo] = []
    for number, step in enumerate(steps.steps):
        info = StepInfo(step, facts[step.node])
        if len(step.ids):
            info.locations = _locations(graph, steps, info)
            request = requests[step.segment]
            # Of an output whose derivative nobody gives nothing follows (Kaldi's compiler would
            # demand that derivative all the same where the output depends on parameters).
            need_deriv = _asks_for_deriv(nnet, request, info) or (
                not nnet.is_output(step.node)
                and any(infos[i].deriv for i in _dependencies(number, info))
            )
            _declare_matrices(nnet, infos, info, need_deriv, computation)
        infos.append(info)
    return infos


def _locations(graph: ComputationGraph, steps: Steps, info: StepInfo) -> list[Locations]:
    if not info.facts.parts:
        return []
    all_terms = graph.dependencies(info.step.ids)
    locations = []
    for part in info.facts.parts:
        terms = _in_order(all_terms[:, part.first_leaf : part.end_leaf])
        locations.append(Locations(steps.step_of[terms], steps.row_of[terms]))
    return locations


def _in_order(terms: IntArray) -> IntArray:
    """Each row's ids increasing (which is the order of cindexes), -1 last."""
    if terms.shape[1] < 2:
        return terms
    # Mostly one order is right for all rows.
    terms = terms[:, np.argsort(terms[0])]
    if terms[:, 0].min() >= 0 and all_true(terms[:, 1:] >= terms[:, :-1]):
        return terms
    terms = np.sort(np.where(terms < 0, _NO_ID, terms), axis=1)
    return np.where(terms == _NO_ID, np.int32(-1), terms)


def _dependencies(number: int, info: StepInfo) -> list[int]:
    """The steps that a step takes its values from."""
    if info.step.is_input:
        return []
    if info.facts.component is not None:
        return [number - 1]
    if info.step.source >= 0:
        return [info.step.source]
    found: set[int] = set()
    for locations in info.locations:
        first = locations.steps[0].tolist()
        constant = (locations.steps == locations.steps[:1]).all(axis=0).tolist()
        for column, is_constant in enumerate(constant):
            if is_constant:
                found.add(first[column])
            else:
                found.update(sorted_unique(locations.steps[:, column]).tolist())
    return sorted(found - {-1})


def _asks_for_deriv(nnet: Nnet, request: ComputationRequest, info: StepInfo) -> bool:
    """Whether a step's derivative is needed for its own sake."""
    node = info.step.node
    if info.step.is_input:
        spec = request.find_input(nnet.node_names[node])
        return spec is not None and spec.has_deriv
    if nnet.is_output(node):
        spec = request.find_output(nnet.node_names[node])
        return spec is not None and spec.has_deriv
    component = info.facts.component
    return (
        request.need_model_derivative
        and isinstance(component, UpdatableComponent)
        and bool(info.facts.properties & Properties.UPDATABLE)
        and component.learning_rate != 0.0
    )


def _declare_matrices(
    nnet: Nnet,
    infos: Sequence[StepInfo],
    info: StepInfo,
    need_deriv: bool,
    computation: Computation,
) -> None:
    node = nnet.nodes[info.step.node]
    if isinstance(node, DimRangeNode):
        source = infos[info.step.source]
        columns = (0, -1, node.dim_offset, node.dim)
        info.value = computation.new_submatrix(source.value, *columns)
        if need_deriv:
            info.deriv = computation.new_submatrix(source.deriv, *columns)
        return
    size = (len(info.step.ids), info.facts.dim, info.facts.stride_type)
    info.value = computation.new_matrix(*size)
    if need_deriv:
        info.deriv = computation.new_matrix(*size)
    parts = info.facts.parts
    if len(parts) == 1:
        info.value_parts = [info.value]
        info.deriv_parts = [info.deriv] if need_deriv else []
        return
    start = 0
    for part in parts:
        columns = (0, -1, start, part.dim)
        info.value_parts.append(computation.new_submatrix(info.value, *columns))
        if need_deriv:
            info.deriv_parts.append(computation.new_submatrix(info.deriv, *columns))
        start += part.dim
