"""Accuracy and objective over examples, against rows counted one by one."""

import numpy as np
import pytest

from nnet3tools.io.compressed import CompressedMatrix
from nnet3tools.io.general_matrix import to_dense
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.training.combination import FrameDiagnostics
from nnet3tools.training.diagnostics import (
    NnetComputeProb,
    compute_accuracy,
    recompute_stats,
)
from nnet3tools.training.diagnostics_options import ComputeProbOptions
from support.training_helpers import minibatch, network, one_hot

OUTPUT = np.random.default_rng(4).normal(size=(30, 4)).astype(np.float32)
DENSE = np.maximum(np.random.default_rng(5).uniform(-1, 1, size=(30, 4)), 0).astype(np.float32)
DENSE[7] = 0.0


@pytest.mark.parametrize("kind", ["sparse", "dense", "compressed"])
def test_accuracy(kind):
    supervision = {
        "sparse": SparseMatrix.from_dense(DENSE),
        "dense": DENSE,
        "compressed": CompressedMatrix.from_dense(DENSE),
    }[kind]
    weight, correct = np.zeros(4), np.zeros(4)
    for target, output in zip(to_dense(supervision), OUTPUT, strict=True):
        weight[target.argmax()] += target.sum()
        if target.argmax() == output.argmax():
            correct[target.argmax()] += target.sum()
    result = compute_accuracy(supervision, OUTPUT)
    np.testing.assert_allclose(result.weight, weight, rtol=1e-5)
    np.testing.assert_allclose(result.correct, correct, rtol=1e-5)


def test_perfect_and_hopeless():
    classes = OUTPUT.argmax(axis=1)
    perfect = compute_accuracy(one_hot(classes.tolist(), 4, weight=0.5), OUTPUT)
    assert perfect.correct.sum() == perfect.weight.sum() == 15
    hopeless = compute_accuracy(one_hot(((classes + 1) % 4).tolist(), 4), OUTPUT)
    assert hopeless.correct.sum() == 0


def test_totals_and_log_lines(capsys):
    prob = NnetComputeProb(ComputeProbOptions(compute_per_dim_accuracy=True), network())
    for i in range(3):
        prob.compute(minibatch(seed=i))
    assert prob.print_total_stats()
    totals = prob.totals["output"]
    assert totals.weight == 48
    log = capsys.readouterr().err
    assert f"Overall log-likelihood for 'output' is {totals.objective / 48:g} per frame" in log
    assert "per frame, over 48 frames." in log
    assert "Overall accuracy for 'output' is 0." in log
    assert "Overall per-dim accuracy vector for 'output' is  [ " in log


def test_quadratic_is_called_an_objective(capsys):
    prob = NnetComputeProb(
        ComputeProbOptions(compute_accuracy=False), network(objective="quadratic")
    )
    prob.compute(minibatch())
    prob.print_total_stats()
    log = capsys.readouterr().err
    assert "Overall objective for 'output' is -" in log
    assert "accuracy" not in log


def test_nothing_computed():
    assert not NnetComputeProb(ComputeProbOptions(), network()).print_total_stats()


def test_diagnostics_leave_the_network_alone():
    nnet = network()
    relu = nnet.component(nnet.component_index("r1"))
    NnetComputeProb(ComputeProbOptions(), nnet, compute_deriv=True).compute(minibatch())
    assert relu.count == 0


def test_recomputed_statistics():
    nnet = network()
    recompute_stats([minibatch(seed=0), minibatch(seed=1)], nnet, FrameDiagnostics().storing_stats)
    assert nnet.component(nnet.component_index("b1")).count == 32
