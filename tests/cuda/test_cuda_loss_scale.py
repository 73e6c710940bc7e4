"""Loss scaling, with products whose factors are rounded to half precision."""

from dataclasses import replace

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.nnet.arithmetic import vectorize
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.derivative_scale import derivative_scale
from nnet3tools.nnet.device import move_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.training.example import NnetExample
from nnet3tools.training.loss_scale import LossScale
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions
from support.configs import in_a_row
from support.emulated_cuda import REAL, fetch, needs_compiler, rounds_as_the_model, to_device
from support.training_helpers import minibatch, network

pytestmark = needs_compiler


def like():
    return to_device(np.zeros(0, np.float32))


def component(nnet: Nnet, name: str):
    return nnet.component(nnet.component_index(name))


def state(scale: LossScale) -> list[float]:
    return [float(fetch(a)[0]) for a in (scale._scale, scale._good, scale._left_out)]


def test_the_factor_is_halved_at_once_and_doubled_with_patience(device):
    scale = LossScale(like(), start=64.0, patience=3)
    applied, not_applied = (to_device(np.array([x])) for x in (0.25, 0.0))
    downloads = device.downloads
    history = []
    for factor in (applied, applied, not_applied, applied, applied, applied, applied):
        scale.adjust(factor)
        history.append(state(scale))
    assert [h[0] for h in history] == [64, 64, 32, 32, 32, 64, 64]
    assert [h[1] for h in history] == [1, 2, 0, 1, 2, 0, 1]
    assert history[-1][2] == 1
    assert device.downloads == downloads


def test_the_factor_stays_in_bounds(device):
    small, large = LossScale(like(), 2.0**-14), LossScale(like(), 2.0**24, patience=1)
    small.adjust(to_device(np.array([0.0])))
    large.adjust(to_device(np.array([1.0])))
    assert (state(small)[0], state(large)[0]) == (2.0**-14, 2.0**24)


def train(loss_scaling, nnet=None, steps=6, on_device=True, **options):
    """The model after some minibatches, and its trainer."""
    nnet = nnet or network(affine="l2-regularize=0.01")
    tensor.random.seed(1)
    trainer = NnetTrainer(
        NnetTrainerOptions(**options), nnet, like() if on_device else None, loss_scaling
    )
    for i in range(steps):
        trainer.train(minibatch(seed=i % 2))
    return nnet, trainer


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.5},
        {"max_param_change": 0.1},
        {"max_param_change": 0.0},
        {"backstitch_training_scale": 0.3},
    ],
    ids=str,
)
def test_scaling_by_a_power_of_two_changes_nothing(device, options):
    """Without rounding; self-repair, limits, momentum and l2 see what they always see."""
    models = []
    for loss_scaling in (False, True):
        nnet, _ = train(loss_scaling, **options)
        move_nnet(nnet)
        models.append(vectorize(nnet))
    np.testing.assert_allclose(models[1], models[0], rtol=1e-6, atol=1e-7)


@rounds_as_the_model
def test_derivatives_below_half_precision_are_not_lost(device):
    """Rows of weight 1e-7 have derivatives of that size."""
    example = minibatch()
    features, targets = example.io
    light = replace(targets, features=targets.features.scaled(1e-7))
    move = {}
    for name, half, scaling in (
        ("exact", False, False),
        ("plain", True, False),
        ("scaled", True, True),
    ):
        device.half_products = half
        nnet = network()
        component(nnet, "a1").learning_rate = 1e5
        before = vectorize_component(nnet, "a1")
        tensor.random.seed(1)
        options = NnetTrainerOptions(max_param_change=0.0)
        NnetTrainer(options, nnet, like(), scaling).train(NnetExample([features, light]))
        move_nnet(nnet)
        move[name] = vectorize_component(nnet, "a1") - before
    norm = np.linalg.norm(move["exact"])
    assert norm > 1e-3
    assert np.linalg.norm(move["scaled"] - move["exact"]) < 0.02 * norm
    assert np.linalg.norm(move["plain"] - move["exact"]) > 0.1 * norm


def vectorize_component(nnet: Nnet, name: str) -> np.ndarray:
    parameters = component(nnet, name).parameters()
    return np.concatenate([np.array(a).ravel() for a in parameters.values()])


@rounds_as_the_model
@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("limit", [0.0, 2.0])
def test_an_overflow_leaves_the_model_alone_and_halves_the_factor(device, momentum, limit):
    device.half_products = True
    options = {"momentum": momentum, "max_param_change": limit, "print_interval": 1000}
    nnet, trainer = train(True, steps=2, **options)
    scale = trainer._loss_scale
    assert state(scale) == [256.0, 2.0, 0.0]
    before = fetched(nnet)
    tensor.fill(scale._scale, 2.0**20)
    downloads = device.downloads
    trainer.train(minibatch())
    assert device.downloads == downloads
    assert state(scale) == [2.0**19, 0.0, 1.0]
    np.testing.assert_array_equal(fetched(nnet), before)
    tensor.fill(scale._scale, 256.0)
    trainer.train(minibatch())
    after = fetched(nnet)
    assert np.isfinite(after).all()
    assert (after != before).any()


def fetched(nnet: Nnet) -> np.ndarray:
    """Parameters, without moving the network or counting as a download."""
    parts = [
        fetch(a).ravel() for _, c in nnet.updatable_components() for a in c.parameters().values()
    ]
    return np.concatenate(parts)


NATURAL = in_a_row("""input dim=3
a NaturalGradientAffineComponent input-dim=9 output-dim=6 rank-in=2 rank-out=2 \
input=Append(Offset(input, -1), input, Offset(input, 1))
s {kind}
t TdnnComponent input-dim=6 output-dim=5 time-offsets=0 rank-in=2 rank-out=2
ls LogSoftmaxComponent dim=5""")


@rounds_as_the_model
def test_natural_gradient_survives_an_overflow(device):
    device.half_products = True
    text = NATURAL.format(kind="RectifiedLinearComponent dim=6")
    nnet = Nnet.from_config(parse_config_lines(text))
    nnet, trainer = train(True, nnet, steps=2)
    tensor.fill(trainer._loss_scale._scale, 2.0**22)
    trainer.train(minibatch())
    assert state(trainer._loss_scale)[2] == 1.0
    before = fetched(nnet)
    tensor.fill(trainer._loss_scale._scale, 256.0)
    for i in range(3):
        trainer.train(minibatch(seed=i))
    assert state(trainer._loss_scale)[2] == 1.0
    assert np.isfinite(fetched(nnet)).all()
    assert (fetched(nnet) != before).all()
    trainer.print_total_stats()


@pytest.mark.parametrize(
    "kind",
    [
        "RectifiedLinearComponent dim=6 self-repair-scale=0.09 self-repair-lower-threshold=0.9",
        "SigmoidComponent dim=6 self-repair-scale=0.09 self-repair-lower-threshold=0.9",
        "TanhComponent dim=6 self-repair-scale=0.09 self-repair-lower-threshold=1.9",
        "BackpropTruncationComponent dim=6 clipping-threshold=0.01 zeroing-threshold=0.02 "
        "zeroing-interval=1",
        "ClipGradientComponent dim=6 clipping-threshold=0.01 norm-based-clipping=true",
        "ClipGradientComponent dim=6 clipping-threshold=0.01 self-repair-clipped-proportion-"
        "threshold=0.01 self-repair-target=0.1 self-repair-scale=0.5",
    ],
)
def test_thresholds_repairs_and_statistics_see_derivatives_as_they_are(device, kind):
    """In the components that compare derivatives with numbers, or add numbers to them."""
    found = []
    for loss_scaling in (False, True):
        tensor.random.seed(0)
        nnet = Nnet.from_config(parse_config_lines(NATURAL.format(kind=kind)))
        nnet, _ = train(loss_scaling, nnet, steps=8, max_param_change=0.0)
        move_nnet(nnet)
        statistics = [
            np.atleast_1d(v) / max(float(getattr(component(nnet, "s"), "count", 1.0)), 1.0)
            for k, v in vars(component(nnet, "s")).items()
            if isinstance(v, (float, np.ndarray))
        ]
        found.append((vectorize(nnet), np.concatenate([s.ravel() for s in statistics])))
    for got, expected in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


def test_the_scale_of_derivatives_is_one_elsewhere(device):
    train(True, steps=1)
    assert derivative_scale() is None


@pytest.mark.skipif(REAL, reason="counts what a model launches")
@pytest.mark.usefixtures("unpoisoned")
@pytest.mark.parametrize("options", [{}, {"momentum": 0.5}], ids=str)
def test_scales_are_taken_off_in_graphs(device, options):
    """And not by a kernel that is bound anew for each array of parameters in each minibatch."""
    _, trainer = train(True, steps=40, **options)
    alone = []
    for i in range(20):
        device.machine.log.clear()
        trainer.train(minibatch(seed=i % 2))
        alone.append(sum(launch.graph is None for launch in device.machine.log))
    # the copy of the inputs, flags of the forward and of the backward pass
    assert np.median(alone) <= 3
