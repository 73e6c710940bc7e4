"""Every type of component trained from recordings: bit for bit what live runs give."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.executor.computer import ComputeOptions, NnetComputer
from nnet3tools.executor.recorded_step import RecordedStep
from nnet3tools.executor.replay import Replayer
from nnet3tools.nnet.arithmetic import scale_nnet
from nnet3tools.tensor.settings import settings_version
from support import zoo_networks
from support.component_zoo import ZOO
from support.streams import bytes_of
from support.zoo_networks import zoo_network, zoo_program

_RUNS = 14
_CHANGED_AT = 9

CLIPPING = {
    "ClipGradientComponent": "dim=4 norm-based-clipping=true clipping-threshold=0.7 "
    "self-repair-target=0.1 self-repair-clipped-proportion-threshold=0.2 self-repair-scale=0.5",
    "BackpropTruncationComponent": "dim=4 clipping-threshold=0.5 zeroing-threshold=1.2 "
    "zeroing-interval=2 recurrence-interval=1 scale=0.9",
}


def train(kind, workspace_runs, repeats=False):
    """Outputs, input derivatives, model and random state; settings change on the way."""
    _, nnet = zoo_network(3, [kind])
    delta = nnet.copy()
    scale_nnet(delta, 0.0)
    program, request = zoo_program(nnet)
    computer = NnetComputer(
        ComputeOptions(), program, nnet, delta, nnet_to_store_stats=nnet, repeats=repeats
    )
    run = workspace_runs(computer)
    rng = np.random.default_rng(3)
    tensor.random.seed(3)
    seen = []
    for i in range(_RUNS):
        if i == _CHANGED_AT:
            change_settings(nnet, delta)
        computer.reset()
        computer.accept_input("input", noise(rng, (len(request.inputs[0].indexes), 3)))
        computer.run()
        output = computer.get_output("output")
        seen.append(output.copy())
        computer.accept_input("output", noise(rng, output.shape))
        computer.run()
        seen.append(computer.get_output("input").copy())
        run("update", lambda: update(nnet, delta))
    return seen, bytes_of(nnet.write), tensor.random.get_state()


def noise(rng, shape):
    return rng.normal(size=shape).astype(np.float32)


def change_settings(nnet, delta):
    for component in (*nnet.components, *delta.components):
        for name, value in (("learning_rate", 0.003), ("dropout_proportion", 0.4),
                            ("self_repair_scale", 0.02)):  # fmt: skip
            if hasattr(component, name):
                setattr(component, name, value)


def update(nnet, delta):
    for source, dest in zip(delta.components, nnet.components, strict=True):
        dest.add(0.1, source)
    scale_nnet(delta, 0.0)


def recorded(computer):
    return Replayer(computer._replayer._workspace).run


def live(computer):
    computer._replayer = None
    return lambda key, work: work()


@pytest.mark.parametrize("kind", sorted(ZOO))
def test_recordings_give_bit_for_bit_what_live_runs_give(kind, monkeypatch):
    for name, config in CLIPPING.items():
        monkeypatch.setitem(zoo_networks.TRUE_DERIVATIVES, name, config)
    expected, model, state = train(kind, live)
    for repeats in (False, True):  # with the second run as the example, and with the first
        seen, recorded_model, recorded_state = train(kind, recorded, repeats)
        for a, b in zip(seen, expected, strict=True):
            np.testing.assert_array_equal(a, b)
        assert recorded_model == model
        assert recorded_state == state


def test_nothing_runs_live_again_after_a_first_run_that_was_recorded(monkeypatch):
    """Room for statistics and estimates of natural gradient are made in the first run."""
    live_runs = []
    run_python = RecordedStep._run_python
    monkeypatch.setattr(
        RecordedStep, "_run_python", lambda *args: (live_runs.append(0), run_python(*args))[1]
    )
    # all decisions as in a first run
    monkeypatch.setattr(tensor.random, "rand_int", lambda low, high: high)
    monkeypatch.setattr(tensor.random, "rand_uniform", lambda: 1.0)
    rng = np.random.default_rng(3)
    kinds = ["NaturalGradientAffineComponent", "RectifiedLinearComponent"]
    _, nnet = zoo_network(3, [*kinds, "RestrictedAttentionComponent"])
    delta = nnet.copy()
    program, request = zoo_program(nnet)
    computer = NnetComputer(
        ComputeOptions(), program, nnet, delta, nnet_to_store_stats=nnet, repeats=True
    )
    counts = []
    for _ in range(4):
        computer.reset()
        computer.accept_input("input", noise(rng, (len(request.inputs[0].indexes), 3)))
        computer.run()
        computer.accept_input("output", noise(rng, computer.get_output("output").shape))
        computer.run()
        counts.append(len(live_runs))
    assert counts[0] > 0
    assert counts == [counts[0]] * 4


def test_recordings_made_void_in_the_forward_pass_are_renewed_from_the_next_one_on():
    """Else the backward pass would be recorded with masks of a forward recording that is gone."""

    def run(repeats):
        _, nnet = zoo_network(11, ["GeneralDropoutComponent", "SigmoidComponent"])
        for component in nnet.components:
            if hasattr(component, "value_sum"):  # in files it may have any size
                component.value_sum = component.deriv_sum = np.ones(component.dim + 1)
        delta = nnet.copy()
        scale_nnet(delta, 0.0)
        program, request = zoo_program(nnet)
        computer = NnetComputer(
            ComputeOptions(), program, nnet, delta, nnet_to_store_stats=nnet, repeats=repeats
        )
        if repeats:
            computer._on_gpu = True
        else:
            live(computer)
        rng = np.random.default_rng(3)
        tensor.random.seed(3)
        for _ in range(6):
            computer.reset()
            computer.accept_input("input", noise(rng, (len(request.inputs[0].indexes), 3)))
            computer.run()
            computer.replay("objective", lambda: None)
            computer.accept_input("output", noise(rng, computer.get_output("output").shape))
            computer.run()
            yield computer.get_output("input").copy()

    for found, expected in zip(run(True), list(run(False)), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_new_program_does_not_outdate_recordings_of_others():
    """The indexes that it is made with are no settings of components."""
    _, nnet = zoo_network(3, ["TdnnComponent", "BackpropTruncationComponent"])
    before = settings_version()
    zoo_program(nnet)
    assert settings_version() == before
