"""Whole training steps and programs on the emulated device, against the host."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from emulated_cuda import needs_compiler, to_device

from nnet3tools import tensor
from nnet3tools.nnet.arithmetic import vectorize
from nnet3tools.nnet.device import move_nnet
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
from training_helpers import minibatch, network  # noqa: E402

pytestmark = needs_compiler


def train(like, steps=6, **options):
    """A model trained for some minibatches, as one host vector, and its trainer."""
    nnet = network(affine="max-change=0.05 l2-regularize=0.01")
    tensor.random.seed(1)
    trainer = NnetTrainer(NnetTrainerOptions(**options), nnet, like)
    for i in range(steps):
        trainer.train(minibatch(seed=i % 2))
    trainer.print_total_stats()
    move_nnet(nnet)
    return nnet, trainer


def test_training_steps_agree_with_the_host(device, capsys):
    options = {"max_param_change": 0.2, "momentum": 0.5, "print_interval": 2}
    expected, _ = train(None, **options)
    host_log = capsys.readouterr().err
    got, _ = train(to_device(np.zeros(0, np.float32)), **options)
    np.testing.assert_allclose(vectorize(got), vectorize(expected), rtol=2e-3, atol=2e-4)
    assert type(got.components[0].linear_params) is not type(to_device([1.0]))
    assert device.launched
    assert _numbers(capsys.readouterr().err) == pytest.approx(_numbers(host_log), rel=1e-3)


def _numbers(text):
    lines = [line for line in text.splitlines() if "objective function" in line]
    return [float(line.split(" is ")[1].split()[0]) for line in lines]
