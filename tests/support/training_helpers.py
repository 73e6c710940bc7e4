"""Small examples for the tests of this folder."""

import numpy as np

from nnet3tools import tensor
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.training.example import NnetExample, frames_io
from nnet3tools.training.merging import merge_examples
from support.configs import in_a_row


def one_hot(classes: list[int], num_cols: int, weight: float = 1.0) -> SparseMatrix:
    """A sparse matrix with one entry a row."""
    n = len(classes)
    return SparseMatrix(
        np.arange(n + 1, dtype=np.int32),
        np.array(classes, np.int32),
        np.full(n, weight, np.float32),
        num_cols,
    )


def example(
    num_frames: int = 4, dim: int = 3, num_classes: int = 5, context: int = 2, seed: int = 0
) -> NnetExample:
    """Input with `context` frames on either side, sparse output."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(num_frames + 2 * context, dim)).astype(np.float32)
    classes = rng.integers(0, num_classes, num_frames).tolist()
    return NnetExample(
        [
            frames_io("input", -context, features),
            frames_io("output", 0, one_hot(classes, num_classes)),
        ]
    )


CONFIG = in_a_row("""input dim=3
a1 AffineComponent input-dim=9 output-dim=7 learning-rate=0.02 {affine} \
input=Append(Offset(input, -1), input, Offset(input, 1))
r1 RectifiedLinearComponent dim=7
b1 BatchNormComponent dim=7
a2 AffineComponent input-dim=7 output-dim=5 learning-rate=0.03
ls LogSoftmaxComponent dim=5
output objective={objective}""")


def network(affine: str = "", objective: str = "linear", seed: int = 0) -> Nnet:
    """A small network with an affine layer, statistics and batch normalisation."""
    tensor.random.seed(seed)
    text = CONFIG.format(affine=affine, objective=objective)
    return Nnet.from_config(parse_config_lines(text))


def minibatch(size: int = 4, seed: int = 0) -> NnetExample:
    """Several examples merged."""
    return merge_examples([example(seed=100 * seed + i) for i in range(size)], False)
