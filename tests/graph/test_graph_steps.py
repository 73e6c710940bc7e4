"""Epochs, phases and steps: the order of computation, and the properties the compiler builds on."""

import contextlib
import itertools
import random

import numpy as np
import pytest

from nnet3tools.errors import RequestError
from nnet3tools.graph.builder import GraphBuilder
from nnet3tools.graph.computation_graph import ComputationGraph
from nnet3tools.graph.epochs import find_sccs, node_epochs, top_sort
from nnet3tools.graph.explain import explain_uncomputable
from nnet3tools.graph.node_rules import NetworkPlan
from nnet3tools.graph.phases import _longest_chains, find_phases
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.graph.steps import Steps, compute_steps
from nnet3tools.nnet.indexes import pack
from nnet3tools.nnet.nnet import Nnet
from support.io_specifications import io_range
from support.plain_graph import RandomNetwork, parse, random_request


def random_graph(rng: random.Random) -> list[list[int]]:
    size = rng.randint(1, 9)
    return [sorted(rng.sample(range(size), rng.randint(0, min(2, size)))) for _ in range(size)]


def reachable(graph: list[list[int]]) -> list[set[int]]:
    """Where each node leads to in one or more edges."""
    to = [set(edges) for edges in graph]
    for _ in graph:
        to = [t.union(*(to[n] for n in t)) for t in to]
    return to


@pytest.mark.parametrize("seed", range(60))
def test_sccs_are_the_classes_of_nodes_that_reach_each_other(seed: int) -> None:
    graph = random_graph(random.Random(seed))
    to = reachable(graph)
    sccs = find_sccs(graph)
    assert sorted(itertools.chain(*sccs)) == list(range(len(graph)))
    for i, scc in enumerate(sccs):
        for a, b in itertools.product(scc, range(len(graph))):
            assert (b in scc) == (a == b or (b in to[a] and a in to[b]))
        assert not any(set(earlier) & to[scc[0]] - set(scc) for earlier in sccs[i + 1 :])


@pytest.mark.parametrize("seed", range(60))
def test_epochs_put_each_node_after_its_sources(seed: int) -> None:
    graph = random_graph(random.Random(seed))
    to, epochs = reachable(graph), node_epochs(graph)
    for node, targets in enumerate(to):
        for target in targets:
            assert epochs[node] <= epochs[target]
            assert (epochs[node] == epochs[target]) == (node == target or node in to[target])


def test_epochs_without_order_are_numbered_as_kaldi_does() -> None:
    # 0 -> 2, 1 -> 2: Kaldi's topological order takes the node with the larger number first.
    assert top_sort([[2], [2], []]) == [1, 0, 2]


def compiled(nnet: Nnet, request: ComputationRequest) -> tuple[ComputationGraph, Steps]:
    """Graph and steps; RequestError for a request that cannot be computed."""
    plan = NetworkPlan(nnet)
    builder = GraphBuilder(plan)
    builder.compute(request)
    if reason := explain_uncomputable(builder, request):
        raise RequestError(reason)
    builder.prune()
    return builder.graph, compute_steps(plan, builder.graph, [request])


def random_case(seed: int) -> tuple[Nnet, ComputationRequest, ComputationGraph, Steps]:
    """The first of the seed's networks and requests that can be computed."""
    for attempt in range(100):
        rng = random.Random(seed if attempt == 0 else f"{seed} {attempt}")
        nnet = parse(RandomNetwork(rng, recurrent=True).text)
        request = random_request(rng, nnet)
        with contextlib.suppress(RequestError):
            return nnet, request, *compiled(nnet, request)
    raise AssertionError("no random request could be computed")


@pytest.mark.parametrize("seed", range(0, 80))
def test_steps_of_random_networks_keep_what_the_compiler_relies_on(seed: int) -> None:
    nnet, request, graph, steps = random_case(seed)
    seen = np.zeros(graph.num_cindexes, bool)
    for number, step in enumerate(steps.steps):
        assert len(step.ids) == len(step.indexes)
        ids = step.ids[step.ids >= 0]
        assert (graph.nodes[ids] == step.node).all()
        assert (graph.keys[ids] == pack(step.indexes)[step.ids >= 0]).all()
        terms = graph.dependencies(step.ids)
        assert (steps.step_of[terms[terms >= 0]] < number).all()
        seen[ids] = True
        name = nnet.node_names[step.node]
        if nnet.is_output(step.node):
            assert step.indexes.tolist() == request.find_output(name).indexes.tolist()
        elif step.is_input:
            assert step.indexes.tolist() == request.find_input(name).indexes.tolist()
        elif nnet.is_component(step.node):
            before = steps.steps[number - 1]
            assert before.node == step.node - 1
            assert before.indexes.tolist() == step.indexes.tolist()
        elif nnet.is_dim_range(step.node):
            source = steps.steps[step.source]
            assert step.source < number
            assert source.indexes.tolist() == step.indexes.tolist()
    assert seen.all()
    everything = np.arange(graph.num_cindexes)
    for cindex, s, row in zip(everything, steps.step_of, steps.row_of, strict=False):
        assert steps.steps[s].ids[row] == cindex


def test_rows_of_steps_are_in_order_of_time_then_sequence() -> None:
    nnet = parse(
        "input-node name=input dim=1\ncomponent name=a type=NoOpComponent dim=1\n"
        "component-node name=a component=a input=input\noutput-node name=output input=a\n"
    )
    rows = np.array([[1, 5, 0], [0, 5, 0], [1, 2, 0], [0, 3, 0]], np.int32)
    request = ComputationRequest(
        [IoSpecification("input", rows)], [IoSpecification("output", rows)]
    )
    _, steps = compiled(nnet, request)
    of_component = next(s for s in steps.steps if nnet.is_component(s.node))
    assert of_component.indexes.tolist() == [[1, 2, 0], [0, 3, 0], [0, 5, 0], [1, 5, 0]]


def test_a_recurrence_that_needs_past_and_future_has_no_order() -> None:
    nnet = parse(
        "input-node name=input dim=1\ncomponent name=a type=NoOpComponent dim=1\n"
        "component-node name=a component=a input="
        "Sum(input, Sum(IfDefined(Offset(a, -1)), IfDefined(Offset(a, 1))))\n"
        "output-node name=output input=a\n"
    )
    spec = io_range("input", 0, 4)
    request = ComputationRequest([spec], [io_range("output", 0, 4)])
    with pytest.raises(RequestError, match=r"no order of computation works .* through a "):
        compiled(nnet, request)


def test_phases_of_a_recurrence_follow_time() -> None:
    nnet = parse(
        "input-node name=input dim=1\ncomponent name=a type=NoOpComponent dim=2\n"
        "component-node name=a component=a input=Append(input, IfDefined(Offset(b, -2)))\n"
        "dim-range-node name=b input-node=a dim-offset=0 dim=1\noutput-node name=output input=b\n"
    )
    plan = NetworkPlan(nnet)
    builder = GraphBuilder(plan)
    spec = io_range("input", 0, 6)
    builder.compute(ComputationRequest([spec], [io_range("output", 0, 6)]))
    builder.prune()
    a = nnet.node_index("a")
    phases = [
        builder.graph.indexes(ids)[:, 1].tolist()
        for phase in find_phases(plan, builder.graph, 0)
        for node, ids in phase
        if node == a
    ]
    assert phases == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("most", [3, 400], ids=["few users each", "a point used by all"])
def test_longest_chains_by_definition(most: int) -> None:
    rng = np.random.default_rng(most)
    later = np.arange(1, 400)
    users = np.concatenate([later, later, later[later < most]])
    used = np.concatenate([rng.integers(0, later), rng.integers(0, later), 0 * later[later < most]])
    cycle = np.array([[400, 401], [401, 400], [402, 401]]).T
    levels = _longest_chains(403, *np.concatenate([[users, used], cycle], axis=1))
    want = [0] * 400
    for point in range(1, 400):
        want[point] = 1 + max(want[i] for i in used[users == point])
    assert levels.tolist() == [*want, -1, -1, -1]
