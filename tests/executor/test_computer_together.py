"""Utterances computed together give what they give one by one, in their order."""

import numpy as np
import pytest

from nnet3tools.executor.chunks import Ivectors
from nnet3tools.executor.simple_options import BatchComputationOptions, SimpleComputationOptions
from nnet3tools.executor.utterance_computer import computer_one_by_one, computer_together
from nnet3tools.graph.context import (
    compute_simple_nnet_context,
    is_local_in_time,
    looks_ahead_within,
)
from support.utterance_networks import WITH_IVECTOR, network_of, recurrent_config

INPUT = "input-node name=input dim=3\n"
LOCAL = """
component name=a type=AffineComponent input-dim=9 output-dim=5
component name=tanh type=TanhComponent dim=5
component name=b type=TdnnComponent input-dim=5 output-dim=4 time-offsets=-3,0,1
component-node name=a component=a input=Append(Offset(input, -2), input, Offset(input, 1))
component-node name=tanh component=tanh input=a
component-node name=b component=b input=Sum(tanh, Scale(0.5, Offset(tanh, 2)))
output-node name=output input=b
"""
FORWARD, BACKWARD = (recurrent_config(3, offset, "Offset(input, 1)") for offset in (-1, 2))
PADDED = """
component name=c type=TimeHeightConvolutionComponent num-filters-in=1 num-filters-out=2 \
height-in=3 height-out=3 height-offsets=0 time-offsets=-1,0,1 required-time-offsets=0
component-node name=c component=c input=input
output-node name=output input=c
"""
OPTIONAL = "output-node name=output input=Append(input, Failover(Offset(input, 3), input))\n"
ROUNDED = "output-node name=output input=Append(input, Round(input, 2))\n"
AT_TIME_0 = "output-node name=output input=Append(input, ReplaceIndex(input, t, 0))\n"
LENGTHS = (1, 2, 7, 30, 8, 8, 61, 400, 3, 16, 9, 40, 1000, 5)


@pytest.mark.parametrize(
    ("config", "is_local", "looks_ahead"),
    [
        (INPUT + LOCAL, True, True),
        (FORWARD, False, True),
        (BACKWARD, False, False),
        (WITH_IVECTOR, False, True),
        (INPUT + PADDED, False, False),
        (INPUT + OPTIONAL, False, False),
        (INPUT + ROUNDED, False, False),
    ],
)
def test_only_outputs_of_a_window_may_be_computed_in_any_chunk(config, is_local, looks_ahead):
    nnet = network_of(config)
    assert is_local_in_time(nnet) == is_local
    assert looks_ahead_within(nnet, compute_simple_nnet_context(nnet)) == looks_ahead


def test_frames_of_one_time_belong_to_a_chunk():
    assert not is_local_in_time(network_of(INPUT + AT_TIME_0))


@pytest.mark.parametrize("factor", [1, 3])
@pytest.mark.parametrize(
    ("config", "options_type"),
    [
        (INPUT + LOCAL, SimpleComputationOptions),
        (INPUT + LOCAL, BatchComputationOptions),
        (FORWARD, SimpleComputationOptions),
        (BACKWARD, SimpleComputationOptions),
        (INPUT + PADDED, SimpleComputationOptions),
        (INPUT + OPTIONAL, SimpleComputationOptions),
        (WITH_IVECTOR, SimpleComputationOptions),
    ],
)
def test_utterances_come_out_in_order_as_if_each_were_alone(config, options_type, factor):
    nnet, rng = network_of(config), np.random.default_rng(7)
    options = options_type(frames_per_chunk=9, frame_subsampling_factor=factor)
    one_by_one = computer_one_by_one(nnet, options)
    together = computer_together(nnet, options)
    has_ivectors = nnet.input_dim("ivector") > 0
    expected, found = [], []
    for i, length in enumerate(LENGTHS):
        features = rng.normal(size=(length, 3)).astype(np.float32)
        rows = rng.normal(size=(-(-length // 10), 2)).astype(np.float32)
        ivectors = Ivectors(rows, 10) if has_ivectors else None
        expected.append((str(i), one_by_one.compute(features, ivectors)))
        together.accept(str(i), features, ivectors)
        found += together.ready()
    together.finish()
    found += together.ready()
    assert [key for key, _ in found] == [key for key, _ in expected]
    for (key, output), (_, wanted) in zip(found, expected, strict=True):
        np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("config", [INPUT + LOCAL, FORWARD])
def test_more_utterances_may_come_after_all_that_waited_are_computed(config):
    nnet, rng = network_of(config), np.random.default_rng(1)
    options = SimpleComputationOptions(frames_per_chunk=9, frame_subsampling_factor=3)
    one_by_one, together = computer_one_by_one(nnet, options), computer_together(nnet, options)
    given = {}
    for i, length in enumerate((100, 50, 7, 400, 3000, 3, 9, 60)):
        given[str(i)] = rng.normal(size=(length, 3)).astype(np.float32)
        together.accept(str(i), given[str(i)])
        if i != 3:
            together.finish()
        for key, output in together.ready():
            wanted = one_by_one.compute(given.pop(key))
            np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-5, err_msg=key)
        assert not given or i == 3


def test_few_utterances_wait_whose_companions_are_large():
    computer = computer_together(network_of(FORWARD), SimpleComputationOptions(frames_per_chunk=9))
    num_ready = 0
    for i in range(1, 12):
        computer.accept(str(i), np.zeros((9, 3), np.float32), None, held_bytes=2**24)
        num_ready += len(list(computer.ready()))
        assert i - num_ready <= 64 * 2**20 // 2**24


def test_one_short_utterance_is_computed_by_a_program_of_its_size():
    computer = computer_together(network_of(INPUT + LOCAL), SimpleComputationOptions())
    computer.accept("a", np.ones((4, 3), np.float32))
    computer.finish()
    (request,) = computer.compiler.cache
    assert len(request.outputs[0].indexes) == 4


def test_lengths_share_programs():
    """1,000 lengths would otherwise be 50 programs, of a tenth of a second each."""
    for config, most in ((INPUT + LOCAL, 1), (FORWARD, 12)):
        computer = computer_together(network_of(config), SimpleComputationOptions())
        for length in range(1, 200, 7):
            computer.accept(str(length), np.ones((length, 3), np.float32))
        computer.finish()
        assert len(list(computer.ready())) == len(range(1, 200, 7))
        assert computer.compiler.num_compiled <= most
