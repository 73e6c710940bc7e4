"""Pushing of weights that gives all states the same total probability (Kaldi's push-special.cc).

Unlike pushing in the log semiring, it works if the total over all paths is infinite.
"""

from __future__ import annotations

import numpy as np

from nnet3tools.fast_dataclasses import replace
from nnet3tools.fst.fst import Fst
from nnet3tools.io import log

_MAX_STEPS = 200
_CHECK_EVERY = 5
_SELF = 0.1
"""Multiple of the identity added to the matrix to separate eigenvalues of equal magnitude."""


def push_special(fst: Fst, delta: float) -> Fst:
    """The acceptor with weights w(i, j) + v(j) - v(i) that give all states one total probability.

    A final weight counts as an arc to the start. exp(-v) is the dominant eigenvector of the matrix
    of transition probabilities, found by the power method: Hannemann and Povey, "Combining forward
    and backward search in decoding", 2013. The iteration stops when the logarithms of the states'
    totals differ by at most `delta`.
    """
    size = fst.num_states
    if not size:
        return fst
    final = np.flatnonzero(fst.is_final)
    sources = np.concatenate([fst.sources, final])
    targets = np.concatenate([fst.nextstates, np.full(len(final), fst.start)])
    costs = np.concatenate([fst.weights, fst.finals[final]])
    probs = np.exp(-costs.astype(np.float64))
    vector = np.full(size, 1.0 / np.sqrt(size))
    for step in range(_MAX_STEPS):
        moved = np.bincount(sources, probs * vector[targets], size) + _SELF * vector
        vector = moved / np.sqrt(moved @ moved)
        if step and step % _CHECK_EVERY == 0:
            totals = np.bincount(sources, probs * vector[targets], size) / vector
            if np.log(totals.max() / totals.min()) <= delta:
                break
    else:
        log.warning(
            f"push-special: finished {_MAX_STEPS} iterations without converging.  Output will be "
            "inaccurate."
        )
    potential = -np.log(vector)
    finals = fst.finals.copy()
    finals[final] += (potential[fst.start] - potential[final]).astype(np.float32)
    weights = fst.weights.astype(np.float64) + potential[fst.nextstates] - potential[fst.sources]
    return replace(fst, weights=weights.astype(np.float32), finals=finals, properties=0)
