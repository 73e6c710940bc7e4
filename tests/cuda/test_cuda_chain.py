"""LF-MMI's kernels, run on the host, against the operators' references; launches do not grow."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.chain.options import ChainTrainingOptions
from nnet3tools.chain.output_objective import ChainOutputObjective
from nnet3tools.nnet.arithmetic import vectorize
from nnet3tools.nnet.device import move_nnet
from nnet3tools.tensor.operators.leaky_hmm import leaky_hmm
from nnet3tools.tensor.operators.numerator import numerator
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions
from support.chain_helpers import GRAPH, example, network
from support.emulated_cuda import fetch, mirror, needs_compiler, to_device
from support.random_acceptors import PDFS, random_hmm, random_paths

pytestmark = needs_compiler

LEAK, WEIGHT = 0.1, 0.4


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
