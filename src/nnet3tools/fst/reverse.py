"""Acceptors that read backwards."""

from __future__ import annotations

import numpy as np

from nnet3tools.fst.fst import EPSILON, NOT_FINAL, Fst

__all__ = ["reversed_fst"]


def reversed_fst(fst: Fst) -> Fst:
    """The acceptor of the same sequences from their ends to their beginnings.

    A new state 0 has epsilons, with the final weights, to what were final states; the state that
    was the start is final. Other states are called one more than before.
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
