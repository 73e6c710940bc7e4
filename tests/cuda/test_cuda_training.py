"""Whole training steps and programs on the emulated device, against the host."""

from dataclasses import replace

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import UserError
from nnet3tools.executor.options import ComputeOptions
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.nnet.arithmetic import vectorize
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.device import move_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions
from support.emulated_cuda import get_devices, needs_compiler, to_device
from support.training_helpers import minibatch, network

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
    from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
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
    from nnet3tools.nnet.config import parse_config_lines
    from nnet3tools.nnet.nnet import Nnet
    from support.training_helpers import CONFIG

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


MIXED = """
input-node name=input dim=3
component name=a1 type=NaturalGradientAffineComponent input-dim=9 output-dim=8 rank-in=3 rank-out=2
component-node name=a1 component=a1 input=Append(Offset(input, -1), input, Offset(input, 1))
component name=r1 type=RectifiedLinearComponent dim=8 self-repair-scale=0.02
component-node name=r1 component=r1 input=a1
component name=b1 type=BatchNormComponent dim=8
component-node name=b1 component=b1 input=r1
component name=a2 type=TdnnComponent input-dim=8 output-dim=8 time-offsets=0,1 rank-in=3 rank-out=2
component-node name=a2 component=a2 input=b1
component name=s2 type=SigmoidComponent dim=8 self-repair-scale=0.01
component-node name=s2 component=s2 input=a2
{dropout}
component name=w type=LinearComponent input-dim=12 output-dim=16 orthonormal-constraint=-1
component-node name=w component=w input=Append({last}, IfDefined(Offset(c, -1)))
component name=cell type=LstmNonlinearityComponent cell-dim=4
component-node name=cell component=cell input=Append(w, IfDefined(Offset(c, -1)))
dim-range-node name=c input-node=cell dim-offset=0 dim=4
dim-range-node name=m input-node=cell dim-offset=4 dim=4
component name=a3 type=AffineComponent input-dim=4 output-dim=8
component-node name=a3 component=a3 input=m
component name=t3 type=TanhComponent dim=8 self-repair-scale=0.01
component-node name=t3 component=t3 input=a3
component name=a type=AffineComponent input-dim=8 output-dim=5
component-node name=a component=a input=t3
component name=ls type=LogSoftmaxComponent dim=5
component-node name=ls component=ls input=a
output-node name=output input=ls
"""
DROPOUT = """
component name=d2 type=DropoutComponent dim=8 dropout-proportion=0.3
component-node name=d2 component=d2 input=s2
component name=g2 type=GeneralDropoutComponent dim=8 dropout-proportion=0.2 continuous=true
component-node name=g2 component=g2 input=d2
"""


def mixed_training(like, text, minibatches, **options):
    """The trained model, its counts, the state of the decisions, downloads but for the start."""
    tensor.random.seed(0)
    nnet = Nnet.from_config(parse_config_lines(text))
    trainer = NnetTrainer(NnetTrainerOptions(print_interval=1000, **options), nnet, like)
    for i in range(minibatches):
        if i == 1:
            before = get_devices()[-1].downloads
        trainer.train(minibatch(seed=i % 3))
    downloads = get_devices()[-1].downloads - before
    state = tensor.random.get_state()
    move_nnet(nnet)
    counts = [
        float(getattr(c, name))
        for c in nnet.components
        for name in ("count", "oderiv_count", "num_dims_processed")
        if hasattr(c, name)
    ]
    return nnet, counts, state, downloads


def test_twenty_minibatches_make_the_same_decisions_and_nearly_the_same_model(device):
    text = MIXED.format(dropout="", last="s2")
    expected, counts, state, _ = mixed_training(None, text, 20)
    like = to_device(np.zeros(0, np.float32))
    got, device_counts, device_state, downloads = mixed_training(like, text, 20)
    assert device_state == state
    assert device_counts == pytest.approx(counts)
    assert len({*counts}) > 4  # decisions differed from component to component
    assert downloads == 0
    np.testing.assert_allclose(vectorize(got), vectorize(expected), rtol=2e-3, atol=2e-3)
    for a, b in zip(got.components, expected.components, strict=True):
        for name in ("value_sum", "deriv_sum", "stats_sum", "self_repair_total", "oderiv_sumsq"):
            if getattr(b, name, None) is not None:
                np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=5e-3, atol=1e-3)
    launched = device.launched
    assert launched.count("graph") >= 17 * 3


@pytest.mark.parametrize("options", [{}, {"backstitch_training_scale": 0.3}])
def test_dropout_changes_no_other_decision(device, options):
    text = MIXED.format(dropout=DROPOUT, last="g2")
    _, counts, state, _ = mixed_training(None, text, 8, **options)
    like = to_device(np.zeros(0, np.float32))
    _, device_counts, device_state, downloads = mixed_training(like, text, 8, **options)
    assert device_state == state
    assert device_counts == pytest.approx(counts)
    assert downloads == 0


def test_divergence_is_an_error_at_the_next_log_line(device):
    text = MIXED.format(dropout="", last="s2")
    nnet = Nnet.from_config(parse_config_lines(text))
    like = to_device(np.zeros(0, np.float32))
    trainer = NnetTrainer(NnetTrainerOptions(print_interval=3), nnet, like)
    trainer.train(minibatch())
    nnet.components[0].linear_params[...] = np.nan
    trainer.train(minibatch())
    with pytest.raises(UserError, match="diverged"):
        trainer.train(minibatch())


def test_after_the_first_minibatches_hardly_anything_is_launched_by_itself(device, unpoisoned):
    """Inputs, forward, objective, backward and update are graphs; what is left brings the data."""
    text = MIXED.format(dropout="", last="s2")
    tensor.random.seed(0)
    nnet = Nnet.from_config(parse_config_lines(text))
    like = to_device(np.zeros(0, np.float32))
    trainer = NnetTrainer(NnetTrainerOptions(print_interval=1000), nnet, like)
    for _ in range(40):
        trainer.train(minibatch())
    assert device.captures <= 20  # random decisions of the host are flags, and no variants
    device.launched.clear()
    device.captures = device.kernels_of_graphs = 0
    for _ in range(8):
        trainer.train(minibatch())
    assert device.captures == 0
    graphs = device.launched.count("graph")
    alone = len(device.launched) - graphs - device.kernels_of_graphs
    assert device.kernels_of_graphs > 8 * 60
    assert alone <= 8 * 3  # the copy of a minibatch, flags of the forward and backward pass
    assert graphs <= 8 * 7


def _with_soft_targets(seed):
    """A minibatch whose frames have one to three targets each."""
    rng, found = np.random.default_rng(seed), minibatch(seed=seed % 2)
    counts = rng.integers(1, 4, found.io[1].features.shape[0])
    columns = [np.sort(rng.choice(5, n, replace=False)) for n in counts]
    starts, indexes = np.append(0, np.cumsum(counts)), np.concatenate(columns)
    values = rng.uniform(0.1, 1.0, len(indexes)).astype(np.float32)
    targets = SparseMatrix(starts.astype(np.int32), indexes.astype(np.int32), values, 5)
    found.io[1] = replace(found.io[1], features=targets)
    return found


def _train_with_soft_targets(like, **options):
    """The model after 40 minibatches; devices count captures from the twentieth on."""
    tensor.random.seed(1)
    trainer = NnetTrainer(NnetTrainerOptions(**options), network(), like)
    for i in range(40):
        if i == 20:
            for device in get_devices():
                device.captures = 0
        trainer.train(_with_soft_targets(i))
    move_nnet(trainer.nnet)
    return vectorize(trainer.nnet)


def test_minibatches_whose_numbers_of_targets_differ_share_recordings(device):
    like = to_device(np.zeros(0, np.float32))
    sizes = {_with_soft_targets(i).io[1].features.values.size for i in range(40)}
    assert len(sizes) > 6
    with_graphs = _train_with_soft_targets(like)
    assert device.captures <= 3  # one of a new size; 9 where each number has its own recordings
    plain = _train_with_soft_targets(like, computation=ComputeOptions(cuda_graph=False))
    np.testing.assert_array_equal(with_graphs, plain)
    host = _train_with_soft_targets(None)
    np.testing.assert_allclose(with_graphs, host, rtol=2e-3, atol=2e-4)
