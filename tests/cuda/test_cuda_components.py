"""Every component type in a network on the emulated device, several minibatches, against the host.

Forward, backward, update and statistics; the first runs are plain, the later ones graph replays.
"""

import re

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.executor.computer import ComputeOptions, NnetComputer
from nnet3tools.nnet.arithmetic import scale_nnet
from nnet3tools.nnet.components.base import Properties
from nnet3tools.nnet.device import move_nnet
from support import zoo_networks
from support.component_zoo import ZOO
from support.emulated_cuda import fetch, needs_compiler, to_device
from support.streams import bytes_of
from support.zoo_networks import zoo_network, zoo_program

pytestmark = needs_compiler

RUNS = 8
RANDOM = {"DropoutComponent", "DropoutMaskComponent"}
RANDOM |= {"GeneralDropoutComponent", "SpecAugmentTimeMaskComponent"}
PLAIN = {
    "ConstantComponent", "ConstantFunctionComponent", "DistributeComponent", "FixedAffineComponent",
    "FixedBiasComponent", "FixedScaleComponent", "NoOpComponent", "PermuteComponent",
    "ElementwiseProductComponent", "PerElementOffsetComponent", "PerElementScaleComponent",
    "PnormComponent", "SumBlockComponent", "SumGroupComponent", "MaxpoolingComponent",
    "RepeatedAffineComponent", "BlockAffineComponent", "ConvolutionComponent", "AffineComponent",
    "ScaleAndOffsetComponent", "NormalizeComponent", "SoftmaxComponent", "LogSoftmaxComponent",
    "ExpressionComponent", "StatisticsExtractionComponent", "StatisticsPoolingComponent",
}  # fmt: skip
"""Types that do nothing on the host when they run: one or two of them stand for the rest."""
QUICK = [*sorted(set(ZOO) - PLAIN - RANDOM), "StatisticsPoolingComponent", "ConvolutionComponent"]


def text_of(nnet):
    """The model's file: parameters, statistics, counts."""
    return bytes_of(nnet.write, binary=False).decode()


def train(kind, like, device, seed=3):
    """Outputs and input derivatives of each run, the model at the end, downloads at the end."""
    _, nnet = zoo_network(seed, [kind])
    delta = nnet.copy()
    scale_nnet(delta, 0.0)
    program, request = zoo_program(nnet)
    computer = NnetComputer(
        ComputeOptions(), program, nnet, delta, nnet_to_store_stats=nnet, like=like
    )
    rng = np.random.default_rng(seed)
    tensor.random.seed(seed)
    seen = []
    shapes = [(len(request.inputs[0].indexes), 3), (len(request.outputs[0].indexes), 0)]
    for _ in range(RUNS):
        computer.reset()
        downloads = device.downloads
        computer.accept_input("input", tensor.asarray(normal(rng, shapes[0]), like=like))
        computer.run()
        output = computer.get_output("output")
        seen.append(np.array(fetch(output)))
        computer.accept_input("output", tensor.asarray(normal(rng, output.shape), like=like))
        computer.run()
        seen.append(np.array(fetch(computer.get_output("input"))))
        for source, dest in zip(delta.components, nnet.components, strict=True):
            dest.add(0.1, source)
        scale_nnet(delta, 0.0)
        downloads = device.downloads - downloads
    move_nnet(nnet)
    return seen, text_of(nnet), downloads, tensor.random.get_state()


def normal(rng, shape):
    """Float32 random numbers."""
    return rng.normal(size=shape).astype(np.float32)


def assert_same_model(got, expected):
    """All tokens equal, numbers nearly."""
    number = re.compile(r"[-+]?(\d+\.?\d*(e[-+]?\d+)?|nan|inf)$")
    mine, theirs = got.split(), expected.split()
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        if number.match(a) and number.match(b):
            assert float(a) == pytest.approx(float(b), rel=5e-3, abs=5e-4)
        else:
            assert a == b


def check(kind, device):
    """A component type on the device against the host."""
    expected, model, _, state = train(kind, None, device)
    launched = len(device.launched)
    got, device_model, downloads, device_state = train(
        kind, to_device(np.zeros(0, np.float32)), device
    )
    assert device_state == state, "other random decisions"
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=5e-3, atol=1e-3)
    assert_same_model(device_model, model)
    assert "graph" in device.launched[launched:]
    assert downloads == 0, "the last minibatch waited for the device"


@pytest.mark.parametrize("kind", QUICK)
def test_components_with_host_work_agree_with_the_host(device, kind):
    check(kind, device)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(set(ZOO) - set(QUICK) - RANDOM))
def test_components_agree_with_the_host(device, kind):
    check(kind, device)


@pytest.mark.parametrize("kind", sorted(RANDOM))
def test_random_components_draw_new_masks_at_each_replay_and_keep_the_decisions(device, kind):
    *_, state = train(kind, None, device)
    like = to_device(np.zeros(0, np.float32))
    _, nnet = zoo_network(3, [kind])
    assert any(c.properties & Properties.RANDOM for c in nnet.components)
    got, _, downloads, device_state = train(kind, like, device)
    assert device_state == state
    assert downloads == 0
    zeros = [np.flatnonzero(output == 0.0).tolist() for output in got[4::2]]
    assert len({tuple(z) for z in zeros}) > 1


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (
            "ClipGradientComponent",
            "dim=4 norm-based-clipping=true clipping-threshold=0.7 self-repair-target=0.1 "
            "self-repair-clipped-proportion-threshold=0.2 self-repair-scale=0.5",
        ),
        ("ClipGradientComponent", "dim=4 clipping-threshold=0.3"),
        ("GruNonlinearityComponent", "cell-dim=4 recurrent-dim=2 self-repair-threshold=0.7 "
         "self-repair-scale=0.1"),
        ("OutputGruNonlinearityComponent", "cell-dim=4 self-repair-threshold=0.7 "
         "self-repair-scale=0.1"),
        ("BackpropTruncationComponent", "dim=4 clipping-threshold=0.5 zeroing-threshold=1.2 "
         "zeroing-interval=2 recurrence-interval=1 scale=0.9"),
    ],
)  # fmt: skip
def test_clipped_and_repaired_derivatives_agree_with_the_host(device, monkeypatch, kind, config):
    monkeypatch.setitem(zoo_networks.TRUE_DERIVATIVES, kind, config)
    check(kind, device)
