"""Discriminative training on a device: the lattices are the host's, the rest is captured."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.chain.sequences import output_indexes
from nnet3tools.discriminative.example import (
    NnetDiscriminativeExample,
    NnetDiscriminativeSupervision,
)
from nnet3tools.discriminative.merging import merge_discriminative_examples
from nnet3tools.discriminative.options import DiscriminativeOptions
from nnet3tools.discriminative.trainer import NnetDiscriminativeTrainer
from nnet3tools.executor.options import ComputeOptions
from nnet3tools.nnet.am_nnet import AmNnet
from nnet3tools.nnet.arithmetic import vectorize
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.device import move_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.training.example import NnetExample, frames_io
from nnet3tools.training.trainer import NnetTrainerOptions
from support.emulated_cuda import needs_compiler, to_device
from support.lattice_paths import MODEL, random_supervision

CONFIG = f"""input-node name=input dim=4
component name=a type=NaturalGradientAffineComponent input-dim=4 output-dim={MODEL.num_pdfs}
component-node name=a component=a input=input
output-node name=output input=a
component name=x type=LogSoftmaxComponent dim={MODEL.num_pdfs}
component-node name=x component=x input=a
output-node name=output-xent input=x
"""
FRAMES = 5

pytestmark = needs_compiler


def minibatch(seed: int) -> NnetExample:
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(3):
        indexes = output_indexes(1, FRAMES, 0, 1)
        weights = rng.uniform(size=FRAMES).astype(np.float32)
        output = NnetDiscriminativeSupervision(
            "output", indexes, random_supervision(rng, FRAMES), weights
        )
        features = rng.standard_normal((FRAMES, 4)).astype(np.float32)
        parts.append(NnetDiscriminativeExample([frames_io("input", 0, features)], [output]))
    merged = merge_discriminative_examples(parts, False)
    return NnetExample(merged.inputs, supervisions=tuple(merged.outputs))


def train(like, criterion, graph=True):
    nnet = Nnet()
    tensor.random.seed(1)
    nnet.read_config(parse_config_lines(CONFIG))
    trainer = NnetDiscriminativeTrainer(
        NnetTrainerOptions(momentum=0.5, computation=ComputeOptions(cuda_graph=graph)),
        DiscriminativeOptions(criterion, 0.5, xent_regularize=0.1, l2_regularize=0.01),
        AmNnet(MODEL, nnet),
        nnet,
        like,
    )
    for seed in range(8):
        trainer.train(minibatch(seed))
    assert trainer.print_total_stats()
    move_nnet(nnet)
    return vectorize(nnet)


@pytest.mark.parametrize("criterion", ["mmi", "smbr"])
def test_a_device_trains_as_the_host_does(device, criterion):
    like = to_device(np.zeros(0, np.float32))
    within, without = (train(like, criterion, graph) for graph in (True, False))
    np.testing.assert_array_equal(within, without)
    np.testing.assert_allclose(within, train(None, criterion), rtol=1e-3, atol=1e-4)
