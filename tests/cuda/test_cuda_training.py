"""Whole training steps and programs on the emulated device, against the host."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from emulated_cuda import get_devices, needs_compiler, to_device

from nnet3tools import tensor
from nnet3tools.nnet.arithmetic import vectorize
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.device import move_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
from training_helpers import minibatch, network

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


def test_graphs_are_captured_at_the_second_use_and_change_nothing(device):
    like = to_device(np.zeros(0, np.float32))
    plain = NnetTrainerOptions().computation.__class__(cuda_graph=False)
    expected, _ = train(like, computation=plain)
    assert "graph" not in device.launched
    device.launched.clear()
    got, _ = train(like)
    replayed = device.launched.count("graph")
    assert replayed >= 5  # every minibatch but the first
    np.testing.assert_array_equal(vectorize(got), vectorize(expected))
    for a, b in zip(got.components, expected.components, strict=True):
        if hasattr(a, "count"):
            assert a.count == b.count


def test_graph_replay_of_a_network_without_host_side_steps_is_one_launch(device):
    from nnet3tools.executor.computer import ComputeOptions, NnetComputer
    from nnet3tools.optimizer.compiler import CachingOptimizingCompiler
    from nnet3tools.training.running import computation_request

    nnet, eg = network(), minibatch()
    request = computation_request(nnet, eg, False, False)
    program = CachingOptimizingCompiler(nnet).compile(request)
    features = np.array(eg.io[0].features)
    results = []
    for like in (None, to_device(np.zeros(0, np.float32))):
        computer = NnetComputer(ComputeOptions(), program, nnet, like=like)
        for k in range(4):
            computer.reset()
            computer.accept_input("input", features * (1 + k))
            device.launched.clear()
            computer.run()
        output = computer.get_output("output")
        results.append(np.array(output) if like is None else output.get())
        move_nnet(nnet)
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-5)
    assert device.launched[0] == "graph"
    assert device.launched.count("graph") == 1


@pytest.mark.parametrize("limit", [0.0, 0.05])
def test_plain_training_does_not_wait_for_the_device_between_log_lines(device, limit, capsys):
    """Norms, limits and objectives stay on the device; the model comes out the same."""
    options = {"max_param_change": limit, "print_interval": 100, "store_component_stats": False}
    host, _ = _plain_train(None, options)
    host_log = capsys.readouterr().err
    got, downloads = _plain_train(to_device(np.zeros(0, np.float32)), options)
    np.testing.assert_allclose(vectorize(got), vectorize(host), rtol=2e-3, atol=2e-4)
    assert downloads == 0
    device_log = capsys.readouterr().err
    lines = [t for t in host_log.splitlines() if "max-change was enforced" in t]
    shown = [t for t in device_log.splitlines() if "max-change was enforced" in t]
    assert [t.split(") ", 1)[1] for t in shown] == [t.split(") ", 1)[1] for t in lines]
    assert lines


def _plain_train(like, options):
    from training_helpers import CONFIG

    from nnet3tools.nnet.config import parse_config_lines
    from nnet3tools.nnet.nnet import Nnet

    tensor.random.seed(0)
    text = CONFIG.format(affine="max-change=0.03", objective="linear")
    nnet = Nnet.from_config(parse_config_lines(text))
    trainer = NnetTrainer(NnetTrainerOptions(**options), nnet, like)
    before = get_devices()[-1].downloads
    for i in range(5):
        trainer.train(minibatch(seed=i % 2))
    downloads = get_devices()[-1].downloads - before
    trainer.print_total_stats()
    move_nnet(nnet)
    return nnet, downloads


RECURRENT = """
input-node name=input dim=3
component name=t type=TdnnComponent input-dim=3 output-dim=6 time-offsets=-1,0,1
component-node name=t component=t input=input
component name=w type=NaturalGradientAffineComponent input-dim=8 output-dim=16 rank-in=2 rank-out=3
component-node name=w component=w input=Append(t, IfDefined(Offset(r, -1)))
component name=cell type=LstmNonlinearityComponent cell-dim=4
component-node name=cell component=cell input=Append(w, IfDefined(Offset(c, -1)))
dim-range-node name=c input-node=cell dim-offset=0 dim=4
dim-range-node name=m input-node=cell dim-offset=4 dim=4
dim-range-node name=r input-node=cell dim-offset=4 dim=2
component name=n type=NormalizeComponent dim=4 add-log-stddev=true
component-node name=n component=n input=Sum(m, Offset(m, -1))
component name=a type=AffineComponent input-dim=5 output-dim=5
component-node name=a component=a input=Append(Failover(n, n))
component name=ls type=LogSoftmaxComponent dim=5
component-node name=ls component=ls input=a
output-node name=output input=ls
"""


def test_recurrent_network_with_natural_gradient_agrees_with_the_host(device):
    models = []
    for like in (None, to_device(np.zeros(0, np.float32))):
        tensor.random.seed(0)
        nnet = Nnet.from_config(parse_config_lines(RECURRENT))
        trainer = NnetTrainer(NnetTrainerOptions(), nnet, like)
        for i in range(4):
            trainer.train(minibatch(seed=i % 2))
        move_nnet(nnet)
        models.append(vectorize(nnet))
    assert device.launched.count("graph") > 0
    np.testing.assert_allclose(models[1], models[0], rtol=5e-3, atol=5e-4)
