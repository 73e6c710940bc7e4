"""LF-MMI's objective inside captured graphs: what it is without, whatever the minibatch."""

import re
from dataclasses import replace

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.chain.device_objective import Buffers, DeviceObjective, Tallies, facts_of, on_device
from nnet3tools.chain.minibatch import OutputSupervision
from nnet3tools.chain.objective import compute_chain_objective
from nnet3tools.chain.options import ChainTrainingOptions
from nnet3tools.chain.output_objective import ChainOutputObjective
from nnet3tools.chain.supervision import Supervision
from nnet3tools.executor.options import ComputeOptions
from nnet3tools.fst.fst import Fst
from nnet3tools.nnet.arithmetic import vectorize
from nnet3tools.nnet.device import move_nnet
from nnet3tools.tensor.operators.numerator.packed_paths import capacity
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions
from support.chain_helpers import FRAMES, GRAPH, PDFS, SEQUENCES, example, network, supervision
from support.emulated_cuda import REAL, assert_same, fetch, needs_compiler, to_device

pytestmark = needs_compiler

OPTIONS = ChainTrainingOptions(leaky_hmm_coefficient=0.1, l2_regularize=0.01, xent_regularize=0.1)


OBJECTIVE_NODES = 6
"""Of the objective of a minibatch, whatever its number of frames."""


def labels(seed: int) -> Supervision:
    """Another alignment each time."""
    found = np.random.default_rng(seed).integers(1, PDFS + 1, SEQUENCES * FRAMES)
    return Supervision(0.5, SEQUENCES, FRAMES, PDFS, Fst.linear(found.tolist()))


def other_example(seed: int):
    """A minibatch of the same structure with another supervision."""
    base = example("plain")
    (one,) = base.supervisions
    chain = replace(one.chain, supervision=labels(seed))
    return replace(base, supervisions=(OutputSupervision(chain),))


@pytest.mark.parametrize("kind", ["plain", "end-to-end"])
@pytest.mark.parametrize("xent", [False, True])
@pytest.mark.parametrize("with_weights", [False, True])
def test_it_is_the_objective_that_the_host_looks_at(device, kind, xent, with_weights):
    options = OPTIONS if xent else replace(OPTIONS, xent_regularize=0.0)
    rng = np.random.default_rng(3)
    rows = SEQUENCES * FRAMES
    output = rng.normal(size=(rows, PDFS), scale=8.0).astype(np.float32)
    output[0, 0] = 40.0
    (given,) = example(kind).supervisions
    if not with_weights:
        given = OutputSupervision(replace(given.chain, deriv_weights=np.zeros(0, np.float32)))
    weights = given.chain.deriv_weights if with_weights else np.ones(rows, np.float32)

    deriv, xent_deriv = (np.zeros_like(output) for _ in range(2))
    tensor.random.seed(7)
    expected = compute_chain_objective(
        options, GRAPH, supervision(kind), output, deriv, xent_deriv if xent else None
    )
    expected_xent = float((xent_deriv * output).sum())

    there = [to_device(a) for a in (output, output * 0, output, output * 0)]
    facts, arrays = facts_of(given, PDFS, apply_weights=True)
    paths, row_weights = on_device(facts, [to_device(a) for a in arrays])
    tensor.random.seed(7)
    objective = DeviceObjective(options, GRAPH, Tallies(there[0]))
    buffers = Buffers(*there[: 4 if xent else 2])
    total, l2_term, found_xent = objective.compute(facts, paths, row_weights, buffers)
    assert float(total) == pytest.approx(expected.objective, rel=1e-5)
    assert float(l2_term) == pytest.approx(expected.l2_term, rel=1e-5)
    np.testing.assert_allclose(fetch(there[1]), deriv * weights[:, None], rtol=1e-4, atol=1e-6)
    if xent:
        assert float(found_xent) == pytest.approx(expected_xent, rel=1e-5)
        scaled = 0.1 * xent_deriv * weights[:, None]
        np.testing.assert_allclose(fetch(there[3]), scaled, rtol=1e-4, atol=1e-6)


def train(like, graph, seeds, kind="plain"):
    nnet = network()
    tensor.random.seed(1)
    options = NnetTrainerOptions(computation=ComputeOptions(cuda_graph=graph))
    trainer = NnetTrainer(options, nnet, like, objective=ChainOutputObjective(OPTIONS, GRAPH))
    for seed in seeds:
        trainer.train(example(kind) if seed is None else other_example(seed))
    assert trainer.print_total_stats()
    move_nnet(nnet)
    return vectorize(nnet)


def test_other_supervisions_in_one_graph_give_what_they_give_without(device):
    like = to_device(np.zeros(0, np.float32))
    without, within, again = (train(like, graph, range(12)) for graph in (False, True, True))
    assert_same(within, without)
    np.testing.assert_array_equal(again, within)
    np.testing.assert_allclose(within, train(None, True, range(12)), rtol=2e-3, atol=2e-4)


@pytest.mark.skipif(REAL, reason="counts what a model launches")
@pytest.mark.usefixtures("unpoisoned")
@pytest.mark.parametrize("kind", ["plain", "end-to-end"])
def test_nothing_is_launched_alone_and_nobody_waits(device, kind):
    nnet = network()
    tensor.random.seed(1)
    objective = ChainOutputObjective(OPTIONS, GRAPH)
    like = to_device(np.zeros(0, np.float32))
    trainer = NnetTrainer(NnetTrainerOptions(), nnet, like, objective=objective)
    for i in range(60):
        trainer.train(example(kind) if kind == "end-to-end" else other_example(i))
    counts, chain_nodes = [], []
    for i in range(60, 90):
        before = len(device.machine.log), device.downloads
        trainer.train(example(kind) if kind == "end-to-end" else other_example(i))
        log = device.machine.log[before[0] :]
        assert device.downloads == before[1]
        counts.append(sum(launch.graph is None for launch in log))
        (graph,) = {x.graph for x in log if "leaky_hmm_back" in device.sources.get(x.name, "")}
        chain_nodes.append(sum(x.graph == graph for x in log))
    # the copy of the inputs; flags of the forward pass, the objective and the backward pass
    assert np.median(counts) <= 4
    assert np.median(chain_nodes) <= OBJECTIVE_NODES


def test_minibatches_that_fail_change_nothing_and_are_told_of(device, capfd):
    output = np.full((SEQUENCES * FRAMES, PDFS), np.nan, np.float32)
    (given,) = example("plain").supervisions
    facts, arrays = facts_of(given, PDFS, apply_weights=True)
    paths, weights = on_device(facts, [to_device(a) for a in arrays])
    options = replace(OPTIONS, l2_regularize=0.0)
    there, deriv = to_device(np.nan_to_num(output)), to_device(output)
    there[...] = to_device(np.where(np.arange(PDFS) == 0, -np.inf, 0.0 * output).astype("f4"))
    tallies = Tallies(there)
    objective = DeviceObjective(options, GRAPH, tallies)
    total, _, _ = objective.compute(facts, paths, weights, Buffers(there, deriv))
    tallies.widen(to_device(np.array([[31.0, 0.0]], np.float32)))
    assert float(total) == -10.0 * 0.5 * len(output)
    assert not fetch(deriv).any()
    tallies.warn()
    told = capfd.readouterr().err
    assert re.search("objective function of 1 minibatches .* set to -10 per frame", told)
    assert "31 outside the range" in told
    tallies.warn()
    assert "objective" not in capfd.readouterr().err


@pytest.mark.parametrize("count", [1, 16, 17, 24, 25, 1000, 1 << 20])
def test_capacities_are_few_and_suffice(count):
    assert count <= capacity(count) < max(17, 1.5 * count + 1)
    assert len({capacity(n) for n in range(1, 10000)}) < 25
