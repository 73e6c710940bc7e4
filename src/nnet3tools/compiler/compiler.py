"""From a request to an unoptimized program (Kaldi's Compiler, nnet-compile.cc).

The program allocates and zeroes all matrices, runs forward step by step, then, after a marker,
backward through the steps that have derivatives, and deallocates matrices that the user does not
get. Its commands and numbering are Kaldi's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nnet3tools.compiler.descriptors import DescriptorCompiler
from nnet3tools.compiler.io_order import consolidate_io
from nnet3tools.compiler.node_facts import FactsOfNodes
from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.compiler.search_log import log_deriv_needed, log_distance, log_epochs
from nnet3tools.compiler.step_info import StepInfo, create_step_infos
from nnet3tools.errors import RequestError
from nnet3tools.graph.builder import GraphBuilder
from nnet3tools.graph.computation_graph import ComputationGraph
from nnet3tools.graph.explain import explain_uncomputable
from nnet3tools.graph.node_rules import NetworkPlan
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.graph.steps import compute_steps
from nnet3tools.nnet.indexes import IndexArray
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.commands import (
    AcceptInput,
    AllocMatrix,
    Backprop,
    Command,
    DeallocMatrix,
    NoOperationMarker,
    NoOperationPermanent,
    Propagate,
    ProvideOutput,
    SetConst,
)
from nnet3tools.program.component_facts import ComponentFacts, ComponentTable
from nnet3tools.program.computation import Computation, DebugInfo, MatrixDebugInfo, PrecomputedInfo

AfterExploring = Callable[[GraphBuilder, ComputationRequest], object]


class PlannedSteps(NamedTuple):
    """Cindexes, steps and matrices of a program whose commands are not written yet."""

    graph: ComputationGraph
    infos: list[StepInfo]
    computation: Computation
    """Declares the matrices of all steps."""


class Compiler:
    """Compiles requests for one network, whose structure must not change afterwards."""

    def __init__(self, nnet: Nnet) -> None:
        self.nnet = nnet
        self.plan = NetworkPlan(nnet)
        self.components = ComponentTable(nnet)
        self._facts = FactsOfNodes(nnet, self.components)

    def compile(
        self,
        requests: list[ComputationRequest],
        options: CompilerOptions,
        after_exploring: AfterExploring | None = None,
    ) -> Computation:
        """The unoptimized program for a request, or for several as segments of one program.

        `after_exploring(builder, request)` is called for each request, before the graph in
        `builder` is pruned. RequestError, naming the missing input, if a request is not computable.
        """
        _, infos, computation = self.plan_steps(requests, after_exploring)
        _Emitter(self.nnet, self._facts, requests, infos, computation).emit()
        consolidate_io(computation)
        if options.output_debug_info:
            _add_debug_info(infos, computation)
        return computation

    def plan_steps(
        self, requests: list[ComputationRequest], after_exploring: AfterExploring | None = None
    ) -> PlannedSteps:
        """Graph, steps and matrices of which `compile`, with these arguments, makes commands."""
        _check_segments(requests)
        builder = GraphBuilder(self.plan, expect_all=True)
        for request in requests:
            builder.compute(request)
            if after_exploring is not None:
                after_exploring(builder, request)
            log_distance(builder, request)
            if problem := explain_uncomputable(builder, request):
                raise RequestError(problem)
            builder.prune()
        log_epochs(self.plan)
        steps = compute_steps(self.plan, builder.graph, requests)
        computation = Computation(need_model_derivative=requests[0].need_model_derivative)
        infos = create_step_infos(
            self.nnet, builder.graph, steps, requests, self._facts, computation
        )
        log_deriv_needed(infos)
        return PlannedSteps(builder.graph, infos, computation)


def _check_segments(requests: Sequence[ComputationRequest]) -> None:
    if not requests:
        raise RequestError("no computation request given")
    if len(requests) == 1:
        return
    for request in requests:
        if request.need_model_derivative:
            raise RequestError("a program of several segments cannot compute model derivatives")
        if request.store_component_stats != requests[0].store_component_stats:
            raise RequestError("all segments must agree on whether statistics are stored")


class _Emitter:
    """Writes the commands of one unoptimized program, given the steps."""

    def __init__(
        self,
        nnet: Nnet,
        facts: FactsOfNodes,
        requests: Sequence[ComputationRequest],
        infos: Sequence[StepInfo],
        computation: Computation,
    ) -> None:
        self._nnet, self._facts, self._requests = nnet, facts, requests
        self._infos, self._computation = infos, computation
        self._descriptors = DescriptorCompiler(infos, computation)

    def emit(self) -> None:
        """Write all commands of the program."""
        computation, infos = self._computation, self._infos
        whole = computation.whole_submatrices()
        given, kept = self._matrices_of_user()
        commands = computation.commands
        for submatrix in whole[1:]:
            if computation.matrix_of(submatrix) not in given:
                commands += (AllocMatrix(submatrix), SetConst(submatrix, 0.0))
        for number, info in enumerate(infos):
            if info.facts.component is not None and not info.step.is_input:
                self._precompute(number, info)
        for number, info in enumerate(infos):
            commands += self._forward(number, info)
            if number + 1 < len(infos) and infos[number + 1].step.segment != info.step.segment:
                commands.append(NoOperationMarker())
        commands.append(NoOperationMarker())
        marker = len(commands)
        for number in range(len(infos) - 1, -1, -1):
            if infos[number].deriv:
                commands += self._backward(number, infos[number])
        exchange = [isinstance(c, AcceptInput | ProvideOutput) for c in commands[marker:]]
        if all(exchange) and any(isinstance(c, ProvideOutput) for c in commands[marker:]):
            # Derivatives of inputs that nothing depends on: zeros, still a block of their own.
            commands.append(NoOperationPermanent())
        for submatrix in whole[1:]:
            if computation.matrix_of(submatrix) not in kept:
                commands.append(DeallocMatrix(submatrix))

    def _matrices_of_user(self) -> tuple[set[int], set[int]]:
        """(matrices that the user supplies, matrices that the user gets), as sets of numbers."""
        given, kept = set(), set()
        matrix_of = self._computation.matrix_of
        for info in self._infos:
            if info.step.is_input:
                given.add(matrix_of(info.value))
                if info.deriv and self._input_has_deriv(info):
                    kept.add(matrix_of(info.deriv))
            elif info.facts.is_output:
                kept.add(matrix_of(info.value))
                if info.deriv:
                    given.add(matrix_of(info.deriv))
        return given, kept

    def _input_has_deriv(self, info: StepInfo) -> bool:
        request = self._requests[info.step.segment]
        spec = request.find_input(self._nnet.node_names[info.step.node])
        return spec is not None and spec.has_deriv

    def _precompute(self, number: int, info: StepInfo) -> None:
        """Add precomputed indexes that step `number` has to the program; set info.precomputed."""
        component = info.facts.component
        if component is None or _facts_of(info).simple:
            return
        inputs, outputs = self._infos[number - 1].step.indexes, info.step.indexes
        need_backprop = self._requests[info.step.segment].needs_derivatives
        if (data := component.precompute_indexes(inputs, outputs, need_backprop)) is None:
            return
        if not (_ends_with_n1(inputs) and _ends_with_n1(outputs)):
            inputs = outputs = np.empty((0, 3), np.int32)
        table = self._computation.component_precomputed_indexes
        info.precomputed = len(table)
        table.append(PrecomputedInfo(data, inputs, outputs))

    def _next_is_input(self, number: int) -> bool:
        return number + 1 < len(self._infos) and self._infos[number + 1].step.is_input

    def _forward(self, number: int, info: StepInfo) -> Iterator[Command]:
        node = info.step.node
        if info.step.is_input:
            yield AcceptInput(info.value, node)
            if not self._next_is_input(number):
                # The forward block must not be empty even if nothing is computed.
                yield NoOperationPermanent()
        elif info.facts.component is not None:
            yield self._propagate(number, info)
        elif info.value_parts:
            yield from self._descriptors.forward(info)
            if info.facts.is_output:
                yield ProvideOutput(info.value, node)

    def _propagate(self, number: int, info: StepInfo) -> Command:
        facts = _facts_of(info)
        return Propagate(
            self._component_index(info),
            info.precomputed,
            self._infos[number - 1].value,
            info.value,
            number if info.deriv and facts.uses_memo else 0,
            self._requests[0].store_component_stats and facts.stores_stats,
        )

    def _component_index(self, info: StepInfo) -> int:
        return self._nnet.nodes[info.step.node].component_index  # type: ignore[union-attr]

    def _backward(self, number: int, info: StepInfo) -> Iterator[Command]:
        node = info.step.node
        if info.step.is_input:
            yield ProvideOutput(info.deriv, node)
            if not self._next_is_input(number):
                yield NoOperationPermanent()
        elif info.facts.component is not None:
            yield self._backprop(number, info)
        elif info.deriv_parts:
            if info.facts.is_output:
                yield AcceptInput(info.deriv, node)
            yield from self._descriptors.backward(info)

    def _backprop(self, number: int, info: StepInfo) -> Command:
        facts, source = _facts_of(info), self._infos[number - 1]
        return Backprop(
            self._component_index(info),
            info.precomputed,
            source.value if facts.backprop_needs_input else 0,
            info.value if facts.backprop_needs_output else 0,
            info.deriv,
            source.deriv,
            number if facts.uses_memo else 0,
        )


def _facts_of(info: StepInfo) -> ComponentFacts:
    """The ComponentFacts (type, dimensions, properties) of the component that step `info` runs."""
    assert info.facts.of_component is not None
    return info.facts.of_component


def _ends_with_n1(indexes: IndexArray) -> bool:
    """Whether the last row has n = 1, as in all programs that are compiled for two sequences."""
    return len(indexes) > 0 and int(indexes[-1, 0]) == 1


def _add_debug_info(infos: Sequence[StepInfo], computation: Computation) -> None:
    """Store in `computation` the cindexes of each matrix's rows."""
    none = MatrixDebugInfo(False, np.empty(0, np.int32), np.empty((0, 3), np.int32))
    debug: list[DebugInfo] = [none] * len(computation.matrices)
    for info in infos:
        if info.value == 0 or info.step.source >= 0:
            continue  # a dim-range has no matrix of its own
        nodes = np.full(len(info.step.ids), info.step.node, np.int32)
        for submatrix, is_deriv in ((info.value, False), (info.deriv, True)):
            if submatrix:
                info_of_rows = MatrixDebugInfo(is_deriv, nodes, info.step.indexes)
                debug[computation.matrix_of(submatrix)] = info_of_rows
    computation.matrix_debug_info = debug
