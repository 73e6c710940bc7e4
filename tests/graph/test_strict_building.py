"""Graphs in which all can be computed, found in one pass, against those found in general."""

import numpy as np
import pytest

from nnet3tools.graph.builder import GraphBuilder
from nnet3tools.graph.computation_graph import ComputationGraph
from nnet3tools.graph.explain import explain_uncomputable
from nnet3tools.graph.node_rules import NetworkPlan
from nnet3tools.graph.queue_search import QueueSearch
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.graph.strict_building import strict_graph
from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.nnet.nnet import Nnet
from support.random_networks import KINDS, parse, random_case

NETWORK = """
input-node name=input dim=2
input-node name=ivector dim=3
input-node name=other dim=2
component name=a type=TdnnComponent input-dim=5 output-dim=4 time-offsets=-1,0,2
component-node name=a component=a input=Append(input, ReplaceIndex(ivector, t, 0))
component name=b type=NoOpComponent dim=4
component-node name=b component=b input=Sum(Offset(a, -3), Scale(0.5, Round(a, 3)), Const(1.0, 4))
dim-range-node name=c input-node=b dim-offset=1 dim=2
output-node name=output input=Append(c, Switch(c, Offset(c, 1)))
output-node name=second input=IfDefined(other)
"""


def built(nnet: Nnet, request: ComputationRequest, expect_all: bool) -> GraphBuilder:
    builder = GraphBuilder(NetworkPlan(nnet), expect_all=expect_all)
    builder.compute(request)
    return builder


def assert_same(graph: ComputationGraph, expected: ComputationGraph) -> None:
    for name in ("nodes", "keys", "is_input", "offsets", "terms"):
        found, wanted = getattr(graph, name), getattr(expected, name)
        assert found.dtype == wanted.dtype, name
        assert np.array_equal(found, wanted), name
    assert graph.segment_ends == expected.segment_ends
    assert graph.node_ranges == expected.node_ranges
    for table, other in zip(graph.tables, expected.tables, strict=True):
        assert table.ids.dtype == other.ids.dtype
        assert np.array_equal(table.keys, other.keys)
        assert np.array_equal(table.ids, other.ids)


def assert_built_alike(nnet: Nnet, request: ComputationRequest) -> None:
    """By both ways, before and after pruning."""
    one, general = (built(nnet, request, expect_all) for expect_all in (True, False))
    search, other_search = (QueueSearch(builder, request) for builder in (one, general))
    assert list(search.sizes()) == list(other_search.sizes())
    assert not explain_uncomputable(one, request)
    one.prune()
    general.prune()
    assert_same(one.graph, general.graph)


@pytest.mark.parametrize("kind", KINDS)
def test_random_graphs_are_the_same_both_ways(kind: str) -> None:
    num_strict = 0
    for seed in range(10):
        case = random_case(seed, kind)
        if strict_graph(NetworkPlan(case.nnet), case.request) is not None:
            num_strict += 1
            assert_built_alike(case.nnet, case.request)
    assert num_strict >= 1 or kind not in ("feed forward", "splices", "tdnn", "groups")


def request_of(first: int, last: int, outputs: str = "output") -> ComputationRequest:
    """Frames `first` to `last` of the input for outputs 0 to 8, two sequences."""
    n = [0, 1]
    inputs = [
        IoSpecification("input", make_indexes(n, np.arange(first, last + 1)[:, None])),
        IoSpecification("ivector", make_indexes(n, [[0], [7]])),  # one that nobody takes
        IoSpecification("other", make_indexes(n, np.arange(9)[:, None])),
    ]
    rows = make_indexes(n, np.arange(9)[::-1, None])
    return ComputationRequest(inputs, [IoSpecification(name, rows) for name in outputs.split()])


def test_shared_rows_fixed_times_and_inputs_that_nobody_takes() -> None:
    nnet = parse(NETWORK)
    assert strict_graph(NetworkPlan(nnet), request_of(-10, 20)) is not None
    assert_built_alike(nnet, request_of(-10, 20))


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (request_of(-2, 20), "output"),  # a frame is missing
        (request_of(-10, 20, "output second"), None),  # something is optional
    ],
)
def test_what_is_missing_or_optional_is_left_to_the_general_way(
    request_: ComputationRequest, message: str | None
) -> None:
    nnet = parse(NETWORK)
    assert strict_graph(NetworkPlan(nnet), request_) is None
    problem = explain_uncomputable(built(nnet, request_, True), request_)
    assert problem == explain_uncomputable(built(nnet, request_, False), request_)
    assert problem == "" if message is None else message in problem


def test_a_component_as_input_is_left_to_the_general_way() -> None:
    nnet = parse(NETWORK)
    request = ComputationRequest(
        [IoSpecification("b", make_indexes(0, np.arange(12)))],
        [IoSpecification("output", make_indexes(0, np.arange(9)))],
    )
    assert strict_graph(NetworkPlan(nnet), request) is None
    assert not explain_uncomputable(built(nnet, request, True), request)


def test_a_second_segment_goes_on_from_a_strict_first() -> None:
    nnet = parse(NETWORK)
    graphs = []
    for expect_all in (True, False):
        builder = built(nnet, request_of(-10, 20), expect_all)
        builder.prune()
        later = request_of(21, 30)
        later.inputs = later.inputs[:1]
        later.outputs = [IoSpecification("output", make_indexes([0, 1], [[9], [10], [11]]))]
        builder.compute(later)
        builder.prune()
        graphs.append(builder.graph)
    assert_same(*graphs)
