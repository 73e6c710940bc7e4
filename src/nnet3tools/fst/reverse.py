"""Reversal of acceptors."""

from __future__ import annotations

import numpy as np

from nnet3tools.fst.fst import EPSILON, NOT_FINAL, Fst


def reversed_fst(fst: Fst) -> Fst:
    """The acceptor of the reversed sequences.

    A new state 0 has epsilons, with the final weights, to the former final states. The former start
    is final. The number of each former state increases by one.
    """
    size = fst.num_states
    finals = np.full(size + 1, NOT_FINAL, np.float32)
    finals[fst.start + 1] = 0.0
    ends = np.flatnonzero(fst.is_final)
    return Fst.from_arcs(
        0,
        finals,
        np.concatenate([np.zeros(len(ends), np.int32), fst.nextstates + 1]),
        np.concatenate([np.full(len(ends), EPSILON), fst.ilabels]),
        np.concatenate([fst.finals[ends], fst.weights]),
        np.concatenate([ends, fst.sources]) + 1,
    )
