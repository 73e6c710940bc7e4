"""Labels and weights of arcs as single labels, and back (OpenFst's EncodeMapper)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fst.connect import connect
from nnet3tools.fst.fst import EPSILON, NOT_FINAL, Fst

__all__ = ["Codes", "decoded", "encoded"]


_END = -1
"""The label of final weights, so that no code stands for both an epsilon and one of them."""


@dataclass(frozen=True)
class Codes:
    """What the labels 1, 2, ... of an encoded acceptor stand for."""

    labels: NDArray[np.int32]
    weights: NDArray[np.float32]


def encoded(fst: Fst) -> tuple[Fst, Codes]:
    """The acceptor whose labels, numbered as they come, stand for labels and weights.

    Final weights become arcs, after a state's others, to a new last state.
    """
    finals = np.flatnonzero(fst.is_final)
    end = fst.num_states
    whole = Fst.from_arcs(
        fst.start,
        np.append(np.full(end, NOT_FINAL), 0.0),
        np.concatenate([fst.sources, finals]),
        np.concatenate([fst.ilabels, np.full(len(finals), _END)]),
        np.concatenate([fst.weights, fst.finals[finals]]),
        np.concatenate([fst.nextstates, np.full(len(finals), end)]),
    )
    # 0.0 added, as the bits of -0.0 are others.
    bits = (whole.weights + np.float32(0.0)).view(np.uint32).astype(np.int64)
    pairs = (whole.ilabels.astype(np.int64) << 32) | bits
    _, firsts, inverse = np.unique(pairs, return_index=True, return_inverse=True)
    by_first = np.argsort(firsts)
    numbers = np.empty(len(firsts), np.int32)
    numbers[by_first] = np.arange(1, len(firsts) + 1)
    codes = Codes(whole.ilabels[firsts[by_first]], whole.weights[firsts[by_first]])
    labels = numbers[inverse.reshape(-1)]
    weights = np.zeros(whole.num_arcs, np.float32)
    return replace(whole, ilabels=labels, olabels=labels, weights=weights), codes


def decoded(fst: Fst, codes: Codes) -> Fst:
    """The connected acceptor that an encoded one, with states merged perhaps, stands for.

    Epsilons to a final state without arcs become final weights again.
    """
    labels, weights = codes.labels[fst.ilabels - 1], codes.weights[fst.ilabels - 1]
    labels = np.where(labels == _END, np.int32(EPSILON), labels)
    last = fst.is_final & (fst.counts == 0)
    to_end = (labels == EPSILON) & last[fst.nextstates]
    finals = fst.finals.copy()
    np.minimum.at(finals, fst.sources[to_end], weights[to_end])
    kept = ~to_end
    return connect(
        Fst.from_arcs(
            fst.start,
            finals,
            fst.sources[kept],
            labels[kept],
            weights[kept],
            fst.nextstates[kept],
        )
    )
