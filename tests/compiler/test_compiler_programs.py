"""Compiled programs compute what the network says, forward and backward."""

import contextlib
import functools
import random

import numpy as np
import pytest

from nnet3tools.errors import RequestError
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.nnet.components.base import Component, Properties
from nnet3tools.nnet.descriptor import Const, IfDefined, Joined, Leaf, SumDescriptor
from nnet3tools.nnet.indexes import IndexArray, IntArray, make_indexes
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.nodes import ComponentNode, DescriptorNode, DimRangeNode
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.program import commands as c
from nnet3tools.program.checker import check_computation
from nnet3tools.program.computation import Computation
from support.equivalence import difference, run
from support.interpreter import Interpreter
from support.io_specifications import io_range
from support.plain_graph import (
    Cindex,
    Index,
    PlainGraph,
    RandomNetwork,
    compile_computation,
    leaf_cindex,
    parse,
    random_request,
)
from support.random_networks import Case


class PlainEvaluation:
    """Values of single rows, by recursion."""

    def __init__(
        self, nnet: Nnet, request: ComputationRequest, given: dict[str, np.ndarray]
    ) -> None:
        self.nnet, self.graph = nnet, PlainGraph(nnet, request)
        self.given = {
            (nnet.node_index(spec.name), tuple(index)): row.astype(np.float64)
            for spec in request.inputs
            for index, row in zip(spec.indexes.tolist(), given[spec.name], strict=True)
        }
        self.value = functools.cache(self._value)

    def output(self, spec: IoSpecification) -> np.ndarray:
        node = self.nnet.node_index(spec.name)
        return np.stack([self.value((node, tuple(index))) for index in spec.indexes.tolist()])

    def _value(self, cindex: Cindex) -> np.ndarray:
        node, index = cindex
        if cindex in self.given:
            return self.given[cindex]
        match self.nnet.nodes[node]:
            case DescriptorNode(descriptor):
                return np.concatenate([self._part(part, index) for part in descriptor.parts])
            case DimRangeNode(source, offset, dim):
                return self.value((source, index))[offset : offset + dim]
            case ComponentNode(component_index):
                component = self.nnet.component(component_index)
                out = np.zeros((1, component.output_dim), np.float32)
                row = self.value((node - 1, index)).astype(np.float32)
                component.propagate(None, row[None, :], out)
                return out[0].astype(np.float64)
        raise AssertionError(cindex)

    def _part(self, part: SumDescriptor, index: Index) -> np.ndarray:
        assert self._can(part, index)
        match part:
            case Leaf(source):
                cindex = leaf_cindex(source, index)
                return source.row_scales(np.array([index], np.int32))[0] * self.value(cindex)
            case Const(value, dim):
                return np.full(dim, value)
            case IfDefined(source):
                if self._can(source, index):
                    return self._part(source, index)
                return np.zeros(part.dim(self.nnet))
            case Joined("Sum", terms):
                return sum(self._part(term, index) for term in terms)
            case Joined(_, terms):
                return self._part(next(t for t in terms if self._can(t, index)), index)
        raise AssertionError(part)

    def _can(self, part: SumDescriptor, index: Index) -> bool:
        match part:
            case Leaf(source):
                return leaf_cindex(source, index) in self.graph.computable
            case Const() | IfDefined():
                return True
            case Joined(operator, terms):
                can = [self._can(term, index) for term in terms]
                return all(can) if operator == "Sum" else any(can)
        raise AssertionError(part)


def random_case(seed: int, backprop: bool) -> tuple[Nnet, ComputationRequest, Computation]:
    """The first of the seed's networks and requests that can be computed, and its program."""
    for attempt in range(100):
        rng = random.Random(seed if attempt == 0 else f"{seed} {attempt}")
        nnet = parse(RandomNetwork(rng, recurrent=seed % 2 == 1, backprop=backprop).text)
        request = random_request(rng, nnet, times=5)
        if backprop:
            for spec in request.inputs + request.outputs:
                spec.has_deriv = True
            request.need_model_derivative = rng.random() < 0.5
        with contextlib.suppress(RequestError):
            return nnet, request, compile_computation(nnet, request)
    raise AssertionError("no random request could be computed")


def random_inputs(nnet: Nnet, specs: list[IoSpecification], seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        spec.name: rng.normal(
            size=(len(spec.indexes), nnet.dim(nnet.node_index(spec.name)))
        ).astype(np.float32)
        for spec in specs
    }


@pytest.mark.parametrize("seed", range(100))
def test_random_programs_compute_what_a_plain_evaluation_does(seed: int) -> None:
    nnet, request, computation = random_case(seed, backprop=False)
    given = random_inputs(nnet, request.inputs, seed)
    check_computation(computation, nnet, request, check_rewrite=True)
    outputs = Interpreter(nnet, computation).run(given)
    plain = PlainEvaluation(nnet, request, given)
    for spec in request.outputs:
        expected = plain.output(spec)
        np.testing.assert_allclose(outputs[spec.name], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("seed", range(100))
def test_random_programs_derivatives_are_the_transpose_of_the_forward_map(seed: int) -> None:
    # The networks are affine: <d, f(x + v) - f(x)> must be <f'(d), v> for any x, v, d.
    nnet, request, computation = random_case(1000 + seed, backprop=True)
    x, v = random_inputs(nnet, request.inputs, seed), random_inputs(nnet, request.inputs, seed + 1)
    derivs = random_inputs(nnet, request.outputs, seed + 2)
    check_computation(computation, nnet, request, check_rewrite=True)
    at_x = Interpreter(nnet, computation).run(x | derivs)
    moved = {name: x[name] + v[name] for name in x}
    at_moved = Interpreter(nnet, computation).run(moved | derivs)
    change = {name: at_moved[name] - at_x[name] for name in derivs}
    forward = sum(float((derivs[name] * change[name]).sum()) for name in derivs)
    backward = sum(float((at_x[name] * v[name]).sum()) for name in x)
    size = sum(float(np.abs(derivs[name] * change[name]).sum()) for name in derivs)
    assert forward == pytest.approx(backward, abs=1e-3 + 1e-3 * size)


# -- particular programs


def request_of(
    inputs: dict[str, range], outputs: dict[str, range], backward: bool = False
) -> ComputationRequest:
    return ComputationRequest(
        [io_range(n, r.start, r.stop, backward) for n, r in inputs.items()],
        [io_range(n, r.start, r.stop, backward) for n, r in outputs.items()],
    )


def test_scales_split_a_sum_by_factor_smallest_first() -> None:
    nnet = parse(
        "input-node name=input dim=2\ncomponent name=a type=NoOpComponent dim=2\n"
        "component-node name=a component=a input=input\n"
        "component name=b type=NoOpComponent dim=2\ncomponent-node name=b component=b input=a\n"
        "output-node name=output input=Sum(Scale(3, a), Sum(Scale(-1, b), Const(0.5, 2)))\n"
    )
    request = request_of({"input": range(4)}, {"output": range(4)})
    computation = compile_computation(nnet, request)
    forward = computation.commands
    scaled = [x.alpha for x in forward if isinstance(x, c.MatrixAdd) and x.alpha != 1.0]
    assert scaled == [-1.0, 3.0]
    assert [x.value for x in forward if isinstance(x, c.SetConst) and x.value] == [0.5]
    given = random_inputs(nnet, request.inputs, 0)
    output = Interpreter(nnet, computation).run(given)["output"]
    np.testing.assert_allclose(output, 2 * given["input"] + 0.5, rtol=1e-6)


# -- descriptors that Kaldi accepts in a config file and refuses when it compiles


KALDI_REFUSES = [
    "Sum(Scale(-1, Offset(a, 1)), a)",
    "Sum(Sum(a, Scale(-1, a)), Scale(-1, Offset(a, -1)))",
    "Sum(Scale(2, a), Sum(b, Scale(3, Offset(a, 1))))",
    "Switch(a, Scale(3, Offset(a, 1)))",
    "Offset(Switch(a, Scale(3, a), b), 1)",
    "Sum(a, IfDefined(Switch(Scale(2, Offset(a, 2)), Scale(-1, Offset(b, 3)), a)))",
    "Failover(Offset(a, 3), Const(4, 2))",
    "Failover(Sum(b, Offset(a, 2)), Sum(a, Const(4, 2)))",
    "Failover(Sum(Offset(b, -1), Offset(b, 1)), Const(4, 2))",
    "IfDefined(Const(3, 2))",
    "IfDefined(Sum(Offset(b, -2), Const(3, 2)))",
    "Sum(Failover(b, Const(2, 2)), Failover(Offset(b, 3), Const(-1, 2)))",
    "Scale(2, Failover(b, Const(0.5, 2)))",
    "Scale(0.5, IfDefined(Offset(b, 2)))",
    "Scale(-3, Switch(a, Scale(2, b), a))",
    "Switch(Sum(a, b), Sum(b, Scale(-1, Offset(a, 1))))",
    "Switch(Sum(a, Sum(b, a)), b)",
    "Switch(Failover(b, a), Failover(Offset(b, 1), Offset(a, -1)))",
    "Switch(IfDefined(Offset(b, 2)), IfDefined(Offset(a, -3)))",
    "Switch(Failover(Sum(b, a), a), Sum(b, Failover(b, a)), a)",
    "Append(Sum(a, Scale(-1, Offset(a, 1))), Failover(b, Const(7, 2)))",
]


def network_of(descriptor: str) -> Nnet:
    """Nodes a and b, known for t = -3 ... 8 and 0 ... 5, and a component whose input this is."""
    lines = [f"input-node name={x}-in dim=2" for x in "ab"]
    for x in "ab":
        lines.append(f"component name={x} type=AffineComponent input-dim=2 output-dim=2")
        lines.append(f"component-node name={x} component={x} input={x}-in")
    dim = 4 if "Append" in descriptor else 2
    lines.append(f"component name=c type=AffineComponent input-dim={dim} output-dim=2")
    lines.append(f"component-node name=c component=c input={descriptor}")
    lines.append("output-node name=output input=c")
    lines.append(f"output-node name=direct input={descriptor}")
    return parse("\n".join(lines))


def times_of(nnet: Nnet) -> list[int]:
    """The times of 0 ... 5 at which both outputs can be computed."""
    at = make_indexes(0, np.arange(6))
    request = request_of({"a-in": range(-3, 9), "b-in": range(6)}, {"output": range(1)})
    request.outputs = [IoSpecification("output", at), IoSpecification("direct", at)]
    computable = PlainGraph(nnet, request).computable
    node = nnet.node_index("direct")
    return [t for t in range(6) if (node, (0, t, 0)) in computable]


def whole_request(nnet: Nnet, num_sequences: int, interleaved: bool) -> ComputationRequest:
    """All that the network can do, with all derivatives."""

    def rows(times: list[int]) -> IndexArray:
        n, t = np.meshgrid(np.arange(num_sequences), times, indexing="ij")
        if interleaved:
            n, t = n.T, t.T
        return make_indexes(n.ravel(), t.ravel())

    inputs = {"a-in": list(range(-3, 9)), "b-in": list(range(6))}
    outputs = dict.fromkeys(("output", "direct"), times_of(nnet))
    return ComputationRequest(
        *([IoSpecification(x, rows(t), True) for x, t in io.items()] for io in (inputs, outputs)),
        need_model_derivative=True,
    )


@pytest.mark.parametrize("descriptor", KALDI_REFUSES)
def test_descriptors_that_commands_can_express_compile(descriptor: str) -> None:
    nnet = network_of(descriptor)
    request = whole_request(nnet, 1, False)
    assert len(request.outputs[0].indexes) >= 3
    computation = compile_computation(nnet, request)
    check_computation(computation, nnet, request, check_rewrite=True)
    x, v = (random_inputs(nnet, request.inputs, seed) for seed in (0, 1))
    derivs = random_inputs(nnet, request.outputs, 2)
    evaluation = PlainEvaluation(nnet, request, x)
    at_x = Interpreter(nnet, computation).run(x | derivs)
    for spec in request.outputs:
        expected = evaluation.output(spec)
        found = at_x[spec.name]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    at_moved = Interpreter(nnet, computation).run({n: x[n] + v[n] for n in x} | derivs)
    forward = sum(float((derivs[n] * (at_moved[n] - at_x[n])).sum()) for n in derivs)
    backward = sum(float((at_x[n] * v[n]).sum()) for n in x)
    assert forward == pytest.approx(backward, abs=1e-3)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("descriptor", KALDI_REFUSES)
def test_their_programs_survive_optimization_and_the_shortcut(
    descriptor: str, interleaved: bool
) -> None:
    nnet = network_of(descriptor)
    request = whole_request(nnet, 4, interleaved)
    case = Case("descriptor", 0, descriptor, nnet, request)
    expected = run(case, compile_computation(nnet, request))
    compiler = CachingOptimizingCompiler(nnet)
    assert difference(expected, run(case, compiler.compile(request))) == ""


class Three(Component):
    """Gives 3 in both its columns, from nothing."""

    type_name = "Three"
    input_dim, output_dim, properties = 1, 2, Properties(0)

    def input_indexes(self, output_indexes: IndexArray) -> tuple[IndexArray, IntArray]:
        return output_indexes[:0], np.zeros(len(output_indexes) + 1, np.int32)

    def propagate(self, indexes: object, in_value: object, out_value: np.ndarray) -> None:
        assert in_value is None
        out_value[:] = 3


def test_outputs_that_need_no_input() -> None:
    nnet = parse(
        "input-node name=input dim=1\n"
        "component name=a type=AffineComponent input-dim=1 output-dim=2\n"
        "component-node name=a component=a input=input\n"
        "output-node name=output input=Append(a, Const(2, 1))\n"
        "output-node name=constant input=Const(-1, 2)\n"
    )
    nnet.components[0] = Three()
    request = request_of({"input": range(1)}, {"output": range(5, 8), "constant": range(2)})
    computation = compile_computation(nnet, request)
    check_computation(computation, nnet, request, check_rewrite=True)
    outputs = Interpreter(nnet, computation).run({"input": np.zeros((1, 1), np.float32)})
    assert outputs["output"].tolist() == [[3, 3, 2]] * 3
    assert outputs["constant"].tolist() == [[-1, -1]] * 2


def test_a_row_used_by_many_sums_its_derivatives_in_ranges() -> None:
    nnet = parse("input-node name=input dim=2\noutput-node name=output input=Round(input, 3)\n")
    request = request_of({"input": range(0, 9)}, {"output": range(0, 9)}, backward=True)
    computation = compile_computation(nnet, request)
    ranges = [x for x in computation.commands if isinstance(x, c.AddRowRanges)]
    assert len(ranges) == 1
    assert computation.indexes_ranges[ranges[0].indexes_ranges].tolist() == [
        [0, 3], [-1, -1], [-1, -1], [3, 6], [-1, -1], [-1, -1], [6, 9], [-1, -1], [-1, -1],
    ]  # fmt: skip


def test_inputs_come_first_and_outputs_last_on_both_sides_of_the_marker() -> None:
    nnet = parse(
        "input-node name=input dim=1\ninput-node name=other dim=1\n"
        "output-node name=o1 input=Append(input, other)\noutput-node name=o2 input=input\n"
    )
    request = request_of(
        {"other": range(2), "input": range(2)}, {"o1": range(2), "o2": range(2)}, backward=True
    )
    commands = compile_computation(nnet, request).commands
    mark = next(i for i, x in enumerate(commands) if isinstance(x, c.NoOperationMarker))

    def places(part: list[c.Command], kind: type[c.Command]) -> list[int]:
        return [i for i, x in enumerate(part) if isinstance(x, kind)]

    forward, backward = commands[:mark], commands[mark + 1 :]
    for part in (forward, backward):
        assert places(part, c.AcceptInput) == [0, 1]
        assert places(part, c.ProvideOutput) == [len(part) - 2, len(part) - 1]


def test_an_unused_input_is_still_accepted() -> None:
    nnet = parse(
        "input-node name=input dim=1\ninput-node name=other dim=3\n"
        "output-node name=output input=input\noutput-node name=o2 input=other\n"
    )
    request = request_of({"input": range(2), "other": range(2)}, {"output": range(2)})
    computation = compile_computation(nnet, request)
    accepted = [x.node for x in computation.commands if isinstance(x, c.AcceptInput)]
    assert accepted == [nnet.node_index("input"), nnet.node_index("other")]


def test_values_of_a_component_node_can_be_given() -> None:
    nnet = parse(
        "input-node name=input dim=1\ncomponent name=a type=NoOpComponent dim=1\n"
        "component-node name=a component=a input=Sum(input, Offset(a, -1))\n"
        "output-node name=output input=a\n"
    )
    request = request_of({"input": range(0, 4), "a": range(-1, 0)}, {"output": range(0, 4)})
    computation = compile_computation(nnet, request)
    ones = np.ones((4, 1), np.float32)
    given = {"input": ones, "a": np.array([[10.0]], np.float32)}
    output = Interpreter(nnet, computation).run(given)["output"]
    assert output[:, 0].tolist() == [11, 12, 13, 14]


def test_segments_are_separated_by_markers_and_share_state() -> None:
    nnet = parse(
        "input-node name=input dim=1\ncomponent name=a type=NoOpComponent dim=1\n"
        "component-node name=a component=a input=Sum(input, IfDefined(Offset(a, -1)))\n"
        "output-node name=output input=a\n"
    )
    requests = [request_of({"input": r}, {"output": r}) for r in (range(0, 3), range(3, 6))]
    commands = compile_computation(nnet, requests).commands
    kinds = [type(x) for x in commands]
    assert kinds.count(c.NoOperationMarker) == 2
    middle = kinds.index(c.NoOperationMarker)
    assert kinds[middle - 1] is c.ProvideOutput
    assert kinds[middle + 1] is c.AcceptInput
    assert kinds[:middle].count(c.Propagate) == 3


def test_learning_rate_zero_stops_the_backward_part() -> None:
    text = (
        "input-node name=input dim=1\ncomponent name=a type=AffineComponent input-dim=1 "
        "output-dim=1 learning-rate={}\ncomponent-node name=a component=a input=input\n"
        "component name=b type=AffineComponent input-dim=1 output-dim=1\n"
        "component-node name=b component=b input=a\noutput-node name=output input=b\n"
    )
    request = request_of({"input": range(2)}, {"output": range(2)}, backward=True)
    request.inputs[0].has_deriv = False
    request.need_model_derivative = True
    counts = []
    for rate in (0.1, 0.0):
        commands = compile_computation(parse(text.format(rate)), request).commands
        counts.append(sum(isinstance(x, c.Backprop) for x in commands))
    assert counts == [2, 1]


def test_debug_information_names_rows_of_values_and_derivatives() -> None:
    nnet = parse("input-node name=input dim=1\noutput-node name=output input=Offset(input, 1)\n")
    request = request_of({"input": range(1, 4)}, {"output": range(0, 3)}, backward=True)
    computation = compile_computation(nnet, request)
    found = [
        (info.is_deriv, nnet.node_names[info.nodes[0]], info.indexes[:, 1].tolist())
        for info in computation.matrix_debug_info[1:]
    ]
    assert found == [
        (False, "input", [1, 2, 3]),
        (True, "input", [1, 2, 3]),
        (False, "output", [0, 1, 2]),
        (True, "output", [0, 1, 2]),
    ]


def test_an_uncomputable_output_is_an_error_of_one_line() -> None:
    nnet = parse("input-node name=input dim=1\noutput-node name=output input=Offset(input, 1)\n")
    with pytest.raises(RequestError, match=r"output\(n=0, t=2\) needs input\(n=0, t=3\)") as info:
        compile_computation(nnet, request_of({"input": range(0, 3)}, {"output": range(0, 3)}))
    assert "\n" not in str(info.value)


def test_irregular_rows_keep_the_order_of_the_request() -> None:
    nnet = parse("input-node name=input dim=1\noutput-node name=output input=input\n")
    rows = make_indexes([1, 0, 1, 0], [9, 9, 3, 5])
    request = ComputationRequest(
        [IoSpecification("input", rows)], [IoSpecification("output", rows[[2, 0]])]
    )
    given = np.arange(4, dtype=np.float32)[:, None]
    output = Interpreter(nnet, compile_computation(nnet, request)).run({"input": given})
    assert output["output"][:, 0].tolist() == [2, 0]
