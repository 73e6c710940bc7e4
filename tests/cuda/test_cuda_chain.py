"""LF-MMI's kernels, run on the host, against the operators' references; launches do not grow."""

from __future__ import annotations

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.chain.options import ChainTrainingOptions
from nnet3tools.chain.output_objective import ChainOutputObjective
from nnet3tools.nnet.arithmetic import vectorize
from nnet3tools.nnet.device import move_nnet
from nnet3tools.tensor.leaky_hmm import Hmm, leaky_hmm
from nnet3tools.tensor.numerator import FrameArcs, Paths, numerator
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions
from support.chain_helpers import GRAPH, example, network
from support.emulated_cuda import fetch, mirror, needs_compiler, to_device

pytestmark = needs_compiler

PDFS, LEAK, WEIGHT = 7, 0.1, 0.4


def random_hmm(rng, num_states=300, num_arcs=900):
    """More states than a block has threads."""
    ends = rng.integers(0, num_states, (2, num_arcs)).astype(np.int32)
    initial = rng.uniform(0.1, 1.0, num_states)
    return Hmm(
        *ends,
        rng.integers(0, PDFS - 1, num_arcs).astype(np.int32),  # the last pdf is not there
        rng.uniform(0.1, 0.9, num_arcs).astype(np.float32),
        (initial / initial.sum()).astype(np.float32),
    )


@pytest.mark.parametrize("num_sequences", [1, 3])
def test_denominator(device, num_sequences):
    rng = np.random.default_rng(num_sequences)
    hmm = random_hmm(rng)
    output = rng.normal(size=(6 * num_sequences, PDFS), scale=3.0).astype(np.float32)
    output[2, 3] = 50.0
    expected, expected_deriv = np.zeros(3), np.ones((len(output), PDFS + 2), np.float32)
    results, deriv = mirror([expected.copy(), expected_deriv.copy()])
    rest = (hmm, num_sequences, LEAK)
    leaky_hmm.reference(expected, output, *rest, expected_deriv[:, :PDFS], -WEIGHT)
    leaky_hmm(results, mirror(output), *rest, deriv[:, :PDFS], -WEIGHT)
    np.testing.assert_allclose(fetch(results), expected, 1e-5)
    np.testing.assert_allclose(fetch(deriv), expected_deriv, 1e-4, 1e-5)
    again = mirror(np.zeros(3))
    leaky_hmm(again, mirror(output), *rest)
    assert fetch(again)[0] == fetch(results)[0]


def random_paths(rng, num_frames=5, num_parts=3, same=False):
    """Acceptors side by side; with `same` the same arcs in each frame, as end-to-end ones have."""
    widths = [num_parts] + [num_parts * (70 if t == 1 or same else 4) for t in range(num_frames)]
    if same:
        widths[0] = widths[1]
    frames = []
    for t in range(num_frames):
        if same and frames:
            frames.append(frames[0])
            continue
        ends = [
            (a, b)
            for a in range(widths[t])
            for b in rng.integers(0, widths[t + 1] // num_parts, 3) * num_parts + a % num_parts
        ]
        sources, destinations = np.array(ends).T
        parts = sources % num_parts
        cells = parts * PDFS + rng.integers(0, PDFS, len(parts))
        costs = rng.uniform(0, 2, len(parts))
        frames.append(FrameArcs(sources, destinations, cells, costs, parts))
    first = np.cumsum([0, *widths])
    finals = np.arange(first[-2], first[-1])
    return Paths(
        frames,
        first,
        np.arange(num_frames) * num_parts * PDFS,
        np.arange(num_parts),
        finals,
        rng.uniform(0, 1, len(finals)),
        (finals - first[-2]) % num_parts,
    )


@pytest.mark.parametrize("same", [False, True])
def test_numerator(device, same):
    rng = np.random.default_rng(same)
    paths = random_paths(rng, same=same)
    output = rng.normal(size=(15, PDFS), scale=3.0).astype(np.float32)
    expected, expected_deriv = np.zeros(1), np.ones((len(output), PDFS + 2), np.float32)
    results, deriv = mirror([expected.copy(), expected_deriv.copy()])
    numerator.reference(expected, output, paths, expected_deriv[:, :PDFS], WEIGHT)
    numerator(results, mirror(output), paths, deriv[:, :PDFS], WEIGHT)
    np.testing.assert_allclose(fetch(results), expected, 1e-6)
    np.testing.assert_allclose(fetch(deriv), expected_deriv, 1e-5)
    again = mirror(np.zeros(1))
    numerator(again, mirror(output), paths)
    assert fetch(again)[0] == fetch(results)[0]


@pytest.mark.usefixtures("unpoisoned")
def test_launches_do_not_grow_with_frames(device):
    """One kernel each way for all frames, two for what is before and after."""
    rng = np.random.default_rng(5)
    counts = []
    for num_frames in (3, 9):
        paths, hmm = random_paths(rng, num_frames), random_hmm(rng, 20, 50)
        output = mirror(rng.normal(size=(3 * num_frames, PDFS)).astype(np.float32))
        before = len(device.launched)
        leaky_hmm(mirror(np.zeros(3)), output, hmm, 3, LEAK, mirror(fetch(output)))
        numerator(mirror(np.zeros(1)), output, paths, mirror(fetch(output)))
        counts.append(len(device.launched) - before)
    assert counts[0] == counts[1] <= 9


@pytest.mark.parametrize("kind", ["plain", "end-to-end"])
def test_training_agrees_with_the_host_and_with_itself(device, kind):
    options = ChainTrainingOptions(
        leaky_hmm_coefficient=LEAK, xent_regularize=0.1, l2_regularize=0.01
    )
    models = []
    for like in (None, *[to_device(np.zeros(0, np.float32))] * 2):
        nnet = network()
        tensor.random.seed(1)
        objective = ChainOutputObjective(options, GRAPH)
        trainer = NnetTrainer(NnetTrainerOptions(), nnet, like, objective=objective)
        for _ in range(4):
            trainer.train(example(kind))
        assert trainer.print_total_stats()
        move_nnet(nnet)
        models.append(vectorize(nnet))
    np.testing.assert_allclose(models[1], models[0], rtol=2e-3, atol=2e-4)
    np.testing.assert_array_equal(models[2], models[1])
