"""Outputs of whole utterances on a GPU: copies and waits for each minibatch, and NaN."""

import numpy as np
import pytest

from nnet3tools.executor.simple_options import BatchComputationOptions, SimpleComputationOptions
from nnet3tools.executor.utterance_computer import computer_together
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet
from support.configs import in_a_row
from support.emulated_cuda import counts_transfers, needs_compiler, to_device
from support.training_helpers import network
from support.utterance_networks import recurrent_config

WINDOW = in_a_row("""input dim=3
a1 AffineComponent input-dim=6 output-dim=4 input=Append(Offset(input, -1), Offset(input, 2))""")


def features(count: int, dim: int) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [rng.normal(size=(20, dim)).astype(np.float32) for _ in range(count)]


@needs_compiler
@counts_transfers
@pytest.mark.parametrize("config", [WINDOW, recurrent_config()])
def test_a_minibatch_is_one_copy_to_the_gpu_and_one_wait(device, config) -> None:
    """64 utterances: a block of a network with a fixed context, or chunks of a recurrent."""
    options = BatchComputationOptions(minibatch_size=64)
    nnet, results = Nnet.from_config(parse_config_lines(config)), []
    given = features(64, nnet.input_dim("input"))
    for like in (None, to_device(np.zeros(0, np.float32))):
        computer = computer_together(nnet, options, like=like)
        for _ in range(5):  # live, recorded, then replayed
            before = device.uploads, device.downloads
            for i, matrix in enumerate(given):
                computer.accept(f"u{i}", matrix)
            computer.finish()
            found = dict(computer.ready())
        results.append(found)
    assert (device.uploads - before[0], device.downloads - before[1]) == (1, 1)
    for key, output in results[0].items():
        assert type(results[1][key]) is np.ndarray
        np.testing.assert_allclose(results[1][key], output, rtol=1e-3, atol=1e-5)


@needs_compiler
def test_outputs_that_are_not_finite_are_told_with_the_component(device, capsys) -> None:
    nnet = network()
    nnet.component(0).bias_params[0] = np.inf
    computer = computer_together(
        nnet, SimpleComputationOptions(), like=to_device(np.zeros(0, np.float32))
    )
    computer.compute(features(1, 3)[0])
    assert "'output' overflows or is not finite; it began at component 'a1'" in (
        capsys.readouterr().err
    )
