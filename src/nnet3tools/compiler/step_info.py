"""From steps to matrices: submatrices of each step's value and derivative, terms of its rows.

Kaldi's Compiler::ComputeDerivNeeded, CreateStepInfo and ComputeInputLocationsList in
nnet-compile.cc, with the same numbering of matrices and submatrices.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools.compiler.node_facts import FactsOfNodes, NodeFacts, PartFacts
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.graph.computation_graph import ComputationGraph, all_true, sorted_unique
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.graph.steps import Step, Steps
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.nnet.indexes import IntArray
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.nodes import DimRangeNode
from nnet3tools.program.computation import Computation

_NO_ID = np.iinfo(np.int32).max

SEVERAL = -2
"""Stands in place of a step number if there are several steps."""


class DerivReason(enum.Enum):
    """Reasons, other than the needs of other steps, why a step needs a derivative."""

    INPUT = "the request wants the derivative of this input"
    OUTPUT = "the request gives the derivative of this output"
    UPDATE = "the request wants the model derivative, and the component is updatable"


@dataclass(frozen=True, slots=True)
class Locations:
    """The locations (step, row) whose sum is each row of one part of a descriptor.

    `steps` and `rows` are (rows, terms), -1 for none. A row's terms are in the order of their
    cindexes, the padding last. For each term, `step_of_term` is the step (or -1) that all its rows
    come from, SEVERAL if they differ; `is_whole` says whether it is all rows of one step in order.
    """

    steps: IntArray
    rows: IntArray
    step_of_term: list[int]
    is_whole: list[bool]


class ScaledTerms(NamedTuple):
    """The terms of a descriptor's part that are of `nodes` (None: all); their factor is `alpha`."""

    alpha: float
    nodes: frozenset[int] | None
    locations: Locations


class Constants(NamedTuple):
    """A constant that is added to consecutive rows of one part of a descriptor."""

    value: float
    first_row: int
    num_rows: int


@dataclass(slots=True)
class StepInfo:
    """A compiler step with the submatrices of its value and its derivative; 0 stands for none.

    For a descriptor, `value_parts` and `deriv_parts` (submatrices), `terms` and `constants` have
    one entry for each part. Entry `precomputed` of the program's list has its precomputed indexes.
    """

    step: Step
    facts: NodeFacts
    value: int = 0
    deriv: int = 0
    value_parts: list[int] = field(default_factory=list)
    deriv_parts: list[int] = field(default_factory=list)
    terms: list[list[ScaledTerms]] = field(default_factory=list)
    constants: list[list[Constants]] = field(default_factory=list)
    precomputed: int = 0


def create_step_infos(
    nnet: Nnet,
    graph: ComputationGraph,
    steps: Steps,
    requests: Sequence[ComputationRequest],
    facts: FactsOfNodes,
    computation: Computation,
) -> list[StepInfo]:
    """The StepInfo (submatrices, terms) of each step; declares the matrices in `computation`."""
    infos = [StepInfo(step, facts[step.node]) for step in steps.steps]
    _find_locations(graph, steps, infos)
    any_derivs = False
    for number, info in enumerate(infos):
        if len(info.step.ids):
            request = requests[info.step.segment]
            # An output without a given derivative needs none (Kaldi's compiler demands one if the
            # output depends on parameters).
            need_deriv = own_deriv_reason(nnet, request, info) is not None or (
                any_derivs
                and not info.facts.is_output
                and any(infos[i].deriv for i in dependencies(number, info))
            )
            _declare_matrices(nnet, infos, info, need_deriv, computation)
            any_derivs |= need_deriv
    return infos


def _find_locations(graph: ComputationGraph, steps: Steps, infos: Sequence[StepInfo]) -> None:
    """Set `terms` and `constants` of the descriptor steps in `infos`: what their parts add up."""
    of_node: dict[tuple[int, int], list[StepInfo]] = {}
    for info in infos:
        if info.facts.parts and len(info.step.ids):
            of_node.setdefault((info.step.segment, info.step.node), []).append(info)
    step_sizes = np.array([len(step.ids) for step in steps.steps] + [0], np.int64)
    for members in of_node.values():
        ids = [info.step.ids for info in members]
        ends = np.cumsum([len(i) for i in ids])
        all_terms = graph.dependencies(ids[0] if len(ids) == 1 else np.concatenate(ids))
        for part in members[0].facts.parts:
            terms = all_terms[:, part.first_leaf : part.end_leaf]
            for info in members:
                info.terms.append([])
            for scales, of_scale in _by_scale(part, terms, members):
                of_scale = _in_order(of_scale)
                of_rows = steps.step_of[of_scale], steps.row_of[of_scale]
                of_members = _split_by_step(*of_rows, ends, step_sizes)
                for info, locations in zip(members, of_members, strict=True):
                    info.terms[-1] += [ScaledTerms(*scale, locations) for scale in scales]
            for info, constants in zip(members, _constants(part, terms, ends), strict=True):
                info.constants.append(constants)


def _by_scale(
    part: PartFacts, terms: IntArray, members: Sequence[StepInfo]
) -> Iterator[tuple[list[tuple[float, frozenset[int] | None]], IntArray]]:
    """Yield ([(scale, nodes), ...], terms): which of `terms` (rows, leaves) have which scales.

    If each node has one scale, the only result has all terms, and for each scale the nodes with it
    (None: all). If not, a result for each scale, [(scale, None)], has -1 in place of terms with
    other scales. `members` are the steps whose rows are in `terms`, in order.
    """
    if (nodes_of_scale := part.nodes_of_scale) is not None:
        one = len(nodes_of_scale) == 1
        yield [(alpha, None if one else nodes) for alpha, nodes in nodes_of_scale], terms
        return
    indexes = np.concatenate([info.step.indexes for info in members])
    leaves = part.descriptor.leaves
    scales = np.stack([leaf.row_scales(indexes) for leaf in leaves], axis=1)
    for alpha in np.unique(scales).tolist():
        yield [(alpha, None)], np.where(scales == alpha, terms, np.int32(-1))


def _constants(
    part: PartFacts, terms: IntArray, ends: NDArray[np.int64]
) -> Iterator[list[Constants]]:
    """Yield, for each step of a node, the nonzero Constants that `part` adds to its rows.

    Step i has rows ends[i - 1] to ends[i] - 1 of `terms` (rows of all steps, leaves of the part). A
    term is -1 where a row lacks this leaf, so that IfDefined or Failover may change the constant.
    """
    starts = np.concatenate([[0], ends[:-1]]).tolist()
    if part.constant is not None:
        for start, end in zip(starts, ends.tolist(), strict=True):
            yield [Constants(part.constant, 0, end - start)] if part.constant != 0.0 else []
        return
    used = [column >= 0 for column in terms.T]
    values = part.descriptor.row_constants(len(terms), used)
    for start, end in zip(starts, ends.tolist(), strict=True):
        here = values[start:end]
        changes = [0, *(np.flatnonzero(here[1:] != here[:-1]) + 1).tolist(), end - start]
        yield [
            Constants(float(here[first]), first, after - first)
            for first, after in itertools.pairwise(changes)
            if here[first] != 0.0
        ]


def _split_by_step(
    steps: IntArray, rows: IntArray, ends: NDArray[np.int64], step_sizes: NDArray[np.int64]
) -> Iterator[Locations]:
    """Yield the Locations of each step of a node, from arrays (rows, terms) of all its rows.

    The node's steps have the rows up to ends[0], from there up to ends[1], ...; step_sizes[j] is
    the number of rows of step j of the program.
    """
    if len(ends) == 1:  # most nodes
        yield _of_one_step(steps, rows, step_sizes)
        return
    starts = np.concatenate([[0], ends[:-1]])
    sizes = ends - starts
    first = steps[starts]
    one_step = np.logical_and.reduceat(steps == np.repeat(first, sizes, axis=0), starts)
    in_order = rows == (np.arange(len(rows)) - np.repeat(starts, sizes))[:, None]
    whole = one_step & np.logical_and.reduceat(in_order, starts)
    whole &= step_sizes[first] == sizes[:, None]
    step_of_term = np.where(one_step, first, SEVERAL).tolist()
    bounds = zip(starts.tolist(), ends.tolist(), strict=True)
    for (start, end), of_term, is_whole in zip(bounds, step_of_term, whole.tolist(), strict=True):
        yield Locations(steps[start:end], rows[start:end], of_term, is_whole)


def _of_one_step(steps: IntArray, rows: IntArray, step_sizes: NDArray[np.int64]) -> Locations:
    """The Locations (`steps`, `rows`) of all rows of one step; step j has step_sizes[j] rows."""
    first = steps[0]
    one_step = np.logical_and.reduce(steps == first, axis=0)
    in_order = np.logical_and.reduce(rows == np.arange(len(rows))[:, None], axis=0)
    whole = one_step & in_order & (step_sizes[first] == len(rows))
    return Locations(steps, rows, np.where(one_step, first, SEVERAL).tolist(), whole.tolist())


def _in_order(terms: IntArray) -> IntArray:
    """The ids of dependencies `terms` (rows, width), each row sorted, with -1 (none) last."""
    if terms.shape[1] < 2:
        return terms
    # Mostly the same order sorts all rows.
    terms = terms[:, np.argsort(terms[0])]
    if terms[:, 0].min() >= 0 and all_true(terms[:, 1:] >= terms[:, :-1]):
        return terms
    terms = np.sort(np.where(terms < 0, _NO_ID, terms), axis=1)
    return np.where(terms == _NO_ID, np.int32(-1), terms)


def dependencies(number: int, info: StepInfo) -> set[int]:
    """The steps from which step `number` takes its values."""
    if info.step.is_input:
        return set()
    if info.facts.component is not None:
        return {number - 1}
    if info.step.source >= 0:
        return {info.step.source}
    steps: set[int] = set()
    for locations in (terms.locations for of_part in info.terms for terms in of_part):
        steps.update(locations.step_of_term)
        for column, step in enumerate(locations.step_of_term):
            if step == SEVERAL:
                steps.update(sorted_unique(locations.steps[:, column]).tolist())
    return steps - {-1, SEVERAL}


def own_deriv_reason(nnet: Nnet, request: ComputationRequest, info: StepInfo) -> DerivReason | None:
    """Why the derivative by a step's matrix is requested, or updates its component; None if not."""
    node = info.step.node
    if info.step.is_input:
        spec = request.find_input(nnet.node_names[node])
        return DerivReason.INPUT if spec is not None and spec.has_deriv else None
    if info.facts.is_output:
        spec = request.find_output(nnet.node_names[node])
        return DerivReason.OUTPUT if spec is not None and spec.has_deriv else None
    component = info.facts.component
    is_updated = (
        request.need_model_derivative
        and isinstance(component, UpdatableComponent)
        and info.facts.of_component is not None
        and info.facts.of_component.updatable
        and component.learning_rate != 0.0
    )
    return DerivReason.UPDATE if is_updated else None


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
