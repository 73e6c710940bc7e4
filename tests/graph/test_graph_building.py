"""The computation graph against one worked out row by row; and the cost of building it."""

import random

import numpy as np
import pytest

from nnet3tools.errors import RequestError
from nnet3tools.graph.builder import GraphBuilder
from nnet3tools.graph.computation_graph import ComputationGraph
from nnet3tools.graph.explain import explain_uncomputable
from nnet3tools.graph.node_rules import NetworkPlan
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.nnet.indexes import make_indexes
from support.configs import in_a_row
from support.io_specifications import io_range
from support.plain_graph import PlainGraph, RandomNetwork, parse, random_request

SPLICED = in_a_row("""input dim=3
a NoOpComponent dim=9 input=Append(Offset(input, -1), input, Offset(input, 2))""")

RECURRENT = """
input-node name=input dim=3
component name=a type=NoOpComponent dim=6
component-node name=a component=a input=Append(input, IfDefined(Offset(b, -2)))
dim-range-node name=b input-node=a dim-offset=0 dim=3
output-node name=output input=b
"""


def build(text: str, request: ComputationRequest) -> GraphBuilder:
    builder = GraphBuilder(NetworkPlan(parse(text)))
    builder.compute(request)
    return builder


def as_dict(graph: ComputationGraph) -> dict:
    """{cindex: set of cindexes it depends on}, of plain Python numbers."""
    rows = graph.indexes(np.arange(graph.num_cindexes, dtype=np.int32)).tolist()
    cindexes = [(n, tuple(i)) for n, i in zip(graph.nodes.tolist(), rows, strict=True)]
    terms, offsets = graph.terms.tolist(), graph.offsets.tolist()
    return {
        cindex: {cindexes[d] for d in terms[offsets[i] : offsets[i + 1]] if d >= 0}
        for i, cindex in enumerate(cindexes)
    }


@pytest.mark.parametrize("seed", range(120))
def test_random_graphs_equal_those_worked_out_row_by_row(seed: int) -> None:
    rng = random.Random(seed)
    network = RandomNetwork(rng, recurrent=seed % 2 == 1)
    nnet = parse(network.text)
    request = random_request(rng, nnet)
    plain = PlainGraph(nnet, request)
    builder = GraphBuilder(NetworkPlan(nnet))
    builder.compute(request)
    computable = [set_.tolist() for set_ in builder.computable_outputs(request)]
    expected = [[c in plain.computable for c in output] for output in plain.outputs]
    assert computable == expected, network.text
    if all(all(row) for row in expected):
        builder.prune()
        assert as_dict(builder.graph) == plain.required(), network.text
        check_order_of_ids(builder.graph)
    else:
        assert "is not computable" in explain_uncomputable(builder, request)


def check_order_of_ids(graph: ComputationGraph) -> None:
    """Ids are ordered by node and key, and the tables find them."""
    keys = list(zip(graph.nodes.tolist(), graph.keys.tolist(), strict=True))
    assert keys == sorted(set(keys))
    for node, first, end in graph.node_ranges[0]:
        assert set(graph.nodes[first:end].tolist()) == {node}
        assert graph.tables[node].find(graph.keys[first:end]).tolist() == list(range(first, end))


def test_most_random_requests_are_computable() -> None:
    # Otherwise the test above would say little about pruning.
    computable = 0
    for seed in range(120):
        rng = random.Random(seed)
        nnet = parse(RandomNetwork(rng, recurrent=seed % 2 == 1).text)
        request = random_request(rng, nnet)
        builder = GraphBuilder(NetworkPlan(nnet))
        builder.compute(request)
        computable += not explain_uncomputable(builder, request)
    assert computable > 40


@pytest.mark.parametrize("seed", range(1, 60, 2))
def test_what_is_explored_too_early_does_not_show(seed: int) -> None:
    """Statuses of what outputs may need, and the pruned graph, array for array."""
    rng = random.Random(seed)
    nnet = parse(RandomNetwork(rng, recurrent=True).text)
    request = random_request(rng, nnet)
    builders = [GraphBuilder(NetworkPlan(nnet), foresee=foresee) for foresee in (True, False)]
    for builder in builders:
        builder.compute(request)
    outputs = [np.concatenate(builder.computable_outputs(request)) for builder in builders]
    assert np.array_equal(*outputs)
    if not outputs[0].all():
        assert explain_uncomputable(builders[0], request) == explain_uncomputable(
            builders[1], request
        )
        return
    for builder in builders:
        builder.prune()
    for name in ("nodes", "keys", "is_input", "offsets", "terms"):
        assert np.array_equal(*(getattr(builder.graph, name) for builder in builders))


@pytest.mark.parametrize("delay", [-2, 3])
def test_a_long_recurrence_takes_no_more_rounds_than_a_short_one(
    delay: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = 0
    explore = GraphBuilder._explore

    def counted(self: GraphBuilder) -> None:
        nonlocal rounds
        rounds += 1
        explore(self)

    monkeypatch.setattr(GraphBuilder, "_explore", counted)
    taken = []
    for frames in (20, 200):
        rounds = 0
        given = io_range("input", -frames, 2 * frames)
        wanted = io_range("output", 0, 4)
        build(RECURRENT.replace("-2", str(delay)), ComputationRequest([given], [wanted]))
        taken.append(rounds)
    assert taken[0] == taken[1] < 6


def test_a_recurrence_ends_where_its_input_does() -> None:
    given = io_range("input", -7, 5)
    request = ComputationRequest([given], [io_range("output", 3, 5)])
    builder = build(RECURRENT, request)
    builder.prune()
    graph, a = builder.graph, builder.plan.nnet.node_index("a")
    assert graph.indexes(graph.tables[a].ids)[:, 1].tolist() == list(range(-7, 5))


def test_values_given_for_a_component_node_end_a_recurrence() -> None:
    text = RECURRENT.replace("IfDefined(Offset(b, -2))", "Offset(b, -2)")
    given = [
        io_range("input", 0, 4),
        io_range("a", -2, 0),
    ]
    request = ComputationRequest(given, [io_range("output", 3, 4)])
    builder = build(text, request)
    builder.prune()
    graph, a = builder.graph, builder.plan.nnet.node_index("a")
    assert graph.indexes(graph.tables[a].ids)[:, 1].tolist() == [-2, -1, 1, 3]
    without = ComputationRequest(given[:1], request.outputs)
    assert "input(n=0, t=-1)" in explain_uncomputable(build(text, without), without)


def test_an_endless_recurrence_is_reported() -> None:
    text = RECURRENT.replace("Append(input, IfDefined(Offset(b, -2)))", "IfDefined(Offset(b, -2))")
    text = text.replace("dim=6", "dim=3") + "output-node name=other input=input\n"
    given = io_range("input", 0, 4)
    request = ComputationRequest([given], [io_range("output", 0, 4)])
    with pytest.raises(RequestError, match="endless"):
        build(text, request)


def test_the_reason_names_the_output_row_and_the_missing_input() -> None:
    given = io_range("input", 0, 10)
    request = ComputationRequest([given], [io_range("output", 1, 10)])
    problem = explain_uncomputable(build(SPLICED, request), request)
    assert "output 'output' is not computable in 2 of 9 rows" in problem
    assert "output(n=0, t=8) needs input(n=0, t=10)" in problem
    assert "through a(n=0, t=8)" in problem
    assert "10 rows with t=0 to 9 are given for n=0" in problem
    assert "\n" not in problem


def test_segments_may_use_cindexes_of_earlier_segments() -> None:
    plan = NetworkPlan(parse(RECURRENT))
    builder = GraphBuilder(plan)
    for begin in (0, 4, 8):
        given = io_range("input", begin, begin + 4)
        wanted = io_range("output", begin, begin + 4)
        builder.compute(ComputationRequest([given], [wanted]))
        assert all(c.all() for c in builder.computable_outputs(ComputationRequest([], [wanted])))
        builder.prune()
    graph, a = builder.graph, plan.nnet.node_index("a")
    ids = graph.find(a - 1, make_indexes(0, [4, 5, 6]))
    terms = graph.dependencies(ids)
    b = plan.nnet.node_index("b")
    # input t, b at t - 2: the first two from the segment before.
    assert terms[:, 1].tolist() == graph.find(b, make_indexes(0, [2, 3, 4])).tolist()
    assert (terms[:2, 1] < graph.segment_ends[0]).all()
    assert terms[2, 1] >= graph.segment_ends[0]
    assert len(graph.segment_ends) == 3
    one = ComputationRequest([io_range("input", 0, 12)], [io_range("output", 0, 12)])
    whole = build(RECURRENT, one)
    whole.prune()
    assert as_dict(graph) == as_dict(whole.graph)


def test_an_input_row_given_in_two_segments_is_an_error() -> None:
    builder = GraphBuilder(NetworkPlan(parse(RECURRENT)))
    spec = io_range("input", 0, 4)
    builder.compute(ComputationRequest([spec], [io_range("output", 0, 4)]))
    builder.prune()
    with pytest.raises(RequestError, match="earlier segment"):
        builder.compute(ComputationRequest([spec], [io_range("output", 4, 5)]))
