"""Small chain examples with supervision of any shape."""

import numpy as np

from nnet3tools.chain.example import NnetChainExample, NnetChainSupervision
from nnet3tools.chain.sequences import output_indexes
from nnet3tools.chain.supervision import Supervision
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.io.general_matrix import compress
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.training.example import NnetIo, frames_io

RNG = np.random.default_rng(11)
LABEL_DIM = 300


def acceptor(frames: int) -> Fst:
    """A random acceptor: up to three states for each frame, arcs to states of the next frame."""
    states = np.concatenate([[1], RNG.integers(1, 4, frames - 1), [1]])
    begins = np.concatenate([[0], np.cumsum(states)])
    sources, targets = [], []
    for t in range(frames):
        some = RNG.integers(begins[t], begins[t + 1], 3)
        sources += [*range(begins[t], begins[t + 1]), *some]
        targets += RNG.integers(begins[t + 1], begins[t + 2], states[t] + 3).tolist()
    finals = np.full(begins[-1], NOT_FINAL, np.float32)
    finals[-1] = RNG.random()
    size = len(sources)
    labels, weights = RNG.integers(1, LABEL_DIM + 1, size), RNG.random(size)
    return Fst.from_arcs(0, finals, np.array(sources), labels, weights, np.array(targets))


def chain_example(i: int, is_e2e: bool) -> NnetChainExample:
    """Chain example number `i`: i % 4 selects its structure and the form of its input."""
    frames, left = 4 + i % 2, 3 + (i % 4 == 1)
    matrix = RNG.standard_normal((3 * frames + 2 * left, 5)).astype(np.float32)
    inputs = [frames_io("input", -left, matrix if i % 4 == 2 else compress(matrix))]
    one = np.zeros((1, 3), np.int32)
    if i % 4 == 3:
        counts = [int(RNG.integers(0, 3))]
        columns = RNG.integers(0, 9, counts[0])
        sparse = SparseMatrix.from_counts(counts, columns, RNG.random(counts[0]), 9)
        inputs.append(NnetIo("ivector", one, sparse))
    fsts = (Fst.empty(), (acceptor(frames),)) if is_e2e else (acceptor(frames),)
    supervision = Supervision(1.0, 1, frames, LABEL_DIM, *fsts)
    weights = RNG.random(frames).astype(np.float32) if i % 4 else np.zeros(0, np.float32)
    indexes = output_indexes(1, frames, 0, 3)
    return NnetChainExample(inputs, [NnetChainSupervision("output", indexes, supervision, weights)])
