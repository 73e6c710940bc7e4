"""The draws of Kaldi's graph checks, for a network whose search can be followed by hand."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.graph.builder import GraphBuilder
from nnet3tools.graph.native.search import NativeSearch, search_library
from nnet3tools.graph.node_rules import NetworkPlan
from nnet3tools.graph.queue_search import QueueSearch
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.graph.search_facts import SearchFacts
from nnet3tools.graph.spot_checks import draw_graph_checks
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.nnet.nnet import Nnet
from support.configs import in_a_row
from support.random_networks import KINDS, random_case

CHAIN = in_a_row("""input dim=2
a NoOpComponent dim=2""")

RECURRENCE = in_a_row("""input dim=2
a NoOpComponent dim=2 input=Sum(input, IfDefined(Offset(a, -1)))""")


def drawn(config: str, num_frames: int, monkeypatch: pytest.MonkeyPatch, lowest: bool) -> list:
    """All (low, high) that are drawn from if every draw gives its lowest or highest number."""
    calls = []

    def rand_int(low: int, high: int) -> int:
        calls.append((low, high))
        return low if lowest else high

    nnet = Nnet.from_config(parse_config_lines(config, "test"))
    indexes = make_indexes(0, list(range(num_frames)))
    request = ComputationRequest(
        [IoSpecification("input", indexes)], [IoSpecification("output", indexes)]
    )
    monkeypatch.setattr(tensor.random, "rand_int", rand_int)
    draw_graph_checks(explored(nnet, request), request)
    return calls


def explored(nnet: Nnet, request: ComputationRequest) -> GraphBuilder:
    builder = GraphBuilder(NetworkPlan(nnet))
    builder.compute(request)
    return builder


def test_one_draw_a_hop_of_the_search_and_one_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    # Hops 1-3 find a, its descriptor and the input; hops 4-6 find these and the output computable.
    calls = drawn(CHAIN, 1, monkeypatch, lowest=False)
    assert calls == [(1, 2), (1, 3), (1, 4), (1, 5), (1, 6), (1, 7), (1, 2)]


def test_a_check_draws_for_each_cindex_that_there_is_by_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = drawn(CHAIN, 1, monkeypatch, lowest=True)
    expected = []
    for hop, num_cindexes in enumerate([3, 4, 4, 4, 4, 4], 1):
        expected.append((1, hop + 1))
        expected += [draw for c in range(num_cindexes) for draw in ((0, c), (0, 0))]
    expected.append((1, 2))
    expected += [draw for c in range(4) for draw in ((0, c), (0, 0))]
    assert calls == expected


def test_search_back_in_time_ends_where_nothing_can_be_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = drawn(RECURRENCE, 3, monkeypatch, lowest=False)
    assert calls[:-1] == [(1, hop + 1) for hop in range(1, len(calls))]
    assert 8 <= len(calls) <= 40


TWO_WAYS = """
input-node name=input dim=2
component name=a type=AffineComponent input-dim=4 output-dim=2
component-node name=a component=a input=Append(input, IfDefined(Offset(a, -3)))
component name=b type=AffineComponent input-dim=6 output-dim=2
component-node name=b component=b input=Append(a, Offset(a, -1), IfDefined(Offset(b, 2)))
component name=pool type=StatisticsExtractionComponent input-dim=2 input-period=1 output-period=2
component-node name=pool component=pool input=b
component name=c type=NoOpComponent dim=5
component-node name=c component=c input=Failover(Offset(Round(pool, 2), 4), Round(pool, 2))
output-node name=output input=Append(c, a, Sum(b, IfDefined(Offset(b, -40))))
"""
needs_c = pytest.mark.skipif(search_library() is None, reason="there is no C compiler")


def in_c(builder: GraphBuilder, request: ComputationRequest, max_hops: int = 9999) -> list[int]:
    library = search_library()
    assert library is not None
    return NativeSearch(library, builder, request).sizes(max_hops)


@needs_c
@pytest.mark.parametrize("kind", KINDS)
def test_the_search_in_c_takes_the_course_of_the_one_in_python(kind: str) -> None:
    for seed in range(12):
        case = random_case(seed, kind)
        builder = explored(case.nnet, case.request)
        one_by_one = list(QueueSearch(builder, case.request).sizes())
        assert in_c(builder, case.request) == one_by_one, str(case)


@needs_c
@pytest.mark.parametrize("begin", [-60, -8, 0, 7])
def test_the_search_in_c_asks_about_what_lies_beyond_the_inputs(begin: int) -> None:
    nnet = Nnet.from_config(parse_config_lines(TWO_WAYS, "test"))
    given = make_indexes([0, 1], np.arange(begin, 30)[:, None])
    wanted = make_indexes([0, 1], np.arange(0, 24, 2)[:, None])
    request = ComputationRequest(
        [IoSpecification("input", given)], [IoSpecification("output", wanted)]
    )
    builder = explored(nnet, request)
    one_by_one = list(QueueSearch(builder, request).sizes())
    assert in_c(builder, request) == one_by_one
    assert in_c(builder, request, 7) == one_by_one[:7]


@needs_c
def test_an_error_while_c_asks_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    nnet = Nnet.from_config(parse_config_lines(RECURRENCE, "test"))
    indexes = make_indexes(0, list(range(3)))
    request = ComputationRequest(
        [IoSpecification("input", indexes)], [IoSpecification("output", indexes)]
    )
    builder = explored(nnet, request)

    def fail(self: SearchFacts, cindex: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SearchFacts, "dependencies", fail)
    with pytest.raises(KeyboardInterrupt):
        in_c(builder, request)


@needs_c
def test_draws_are_the_same_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnet3tools.graph.spot_checks._FEW", 0)
    monkeypatch.setattr("nnet3tools.graph.spot_checks.are_native", lambda: False)
    expected = drawn(RECURRENCE, 5, monkeypatch, lowest=True)
    monkeypatch.setattr("nnet3tools.graph.spot_checks.are_native", lambda: True)
    assert drawn(RECURRENCE, 5, monkeypatch, lowest=True) == expected
