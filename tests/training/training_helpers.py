"""Small examples for the tests of this folder."""

from __future__ import annotations

import numpy as np

from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.training.example import NnetExample, frames_io


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
