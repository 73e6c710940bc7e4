"""The draws of Kaldi's graph checks, for a network whose search can be followed by hand."""

from __future__ import annotations

import pytest

from nnet3tools import tensor
from nnet3tools.graph.builder import GraphBuilder
from nnet3tools.graph.network_plan import NetworkPlan
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.graph.spot_checks import QueueSearch, draw_graph_checks
from nnet3tools.graph.strict_search import StrictSearch, is_strict
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.nnet.nnet import Nnet
from support.random_networks import random_case

CHAIN = """
input-node name=input dim=2
component name=a type=NoOpComponent dim=2
component-node name=a component=a input=input
output-node name=output input=a
"""

RECURRENCE = """
input-node name=input dim=2
component name=a type=NoOpComponent dim=2
component-node name=a component=a input=Sum(input, IfDefined(Offset(a, -1)))
output-node name=output input=a
"""


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


@pytest.mark.parametrize("kind", ["feed forward", "splices", "descriptors", "tdnn", "mixture"])
def test_the_search_with_arrays_takes_the_course_of_the_search_one_by_one(kind: str) -> None:
    """Kaldi's rand() goes astray for the rest of a training if one hop too many is counted."""
    num_strict = 0
    for seed in range(25):
        case = random_case(seed, kind)
        builder = explored(case.nnet, case.request)
        if is_strict(builder):
            num_strict += 1
            one_by_one = list(QueueSearch(builder, case.request).sizes())
            assert list(StrictSearch(builder, case.request).sizes()) == one_by_one, str(case)
    assert num_strict >= 3
