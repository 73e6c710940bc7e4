"""Looped computation of random networks against one computation of the whole utterance."""

import random
import re

import numpy as np
import pytest
from test_looped_computer import frames, whole

from nnet3tools.executor.looped_computer import LoopedComputer
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.graph.context import compute_simple_nnet_context
from nnet3tools.nnet.arithmetic import set_batchnorm_test_mode
from nnet3tools.nnet.components.batchnorm import BatchNormComponent
from nnet3tools.nnet.nnet import Nnet
from support.random_networks import parse, random_network

KINDS = ("feed forward", "splices", "lstm", "gru", "tdnn", "groups")
# What looks at later frames only if they are there sees more of them in a whole utterance.
LOOKS_AHEAD = re.compile(r"IfDefined\(Offset\([^,]*, [1-9]")


def streaming_network(seed: int) -> Nnet:
    """A random network that looks ahead by a fixed number of frames, ready for test."""
    kind = KINDS[seed % len(KINDS)]
    rng = random.Random(f"looped {seed}")
    while True:
        config, _ = random_network(kind, rng)
        if not LOOKS_AHEAD.search(config):
            break
    nnet = parse(config, seed + 1)
    rng_of_stats = np.random.default_rng(seed)
    for component in nnet.components:
        if isinstance(component, BatchNormComponent):
            out = rng_of_stats.standard_normal((50, component.dim)).astype(np.float32)
            component.store_stats(out, out.copy(), component.propagate(None, out, out.copy()))
    set_batchnorm_test_mode(nnet, True)
    return nnet


@pytest.mark.parametrize("seed", range(30))
def test_random_networks_in_a_loop(seed: int) -> None:
    nnet = streaming_network(seed)
    context = compute_simple_nnet_context(nnet)
    options = SimpleComputationOptions(frames_per_chunk=random.Random(seed).randint(1, 9))
    features = frames(37, nnet.input_dim("input"))
    looped = LoopedComputer(nnet, options).compute(features)
    expected = whole(nnet, features)
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(looped, expected, atol=1e-4 * scale, err_msg=str(context))
