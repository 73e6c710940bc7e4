"""Encoding of an arc's labels and weight as one label, and decoding (OpenFst's EncodeMapper)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.fst.connect import connect
from nnet3tools.fst.fst import EPSILON, NOT_FINAL, Fst

_END = -1
"""Label of arcs made from final weights; distinct from epsilon, so that no code stands for both."""


@dataclass(frozen=True)
class Codes:
    """Labels and weights of the arcs that the codes 1, 2, ... of an encoded acceptor represent.

    `olabels` is None if the arcs have equal input and output labels.
    """

    labels: NDArray[np.int32]
    weights: NDArray[np.float32]
    olabels: NDArray[np.int32] | None = None
    """Output labels; None if the original FST is an acceptor."""


def encoded(fst: Fst) -> tuple[Fst, Codes]:
    """(`fst` as an acceptor of codes, the codes), numbered in order of first occurrence.

    A final weight becomes an arc, after the state's other arcs, to a new last state.
    """
    finals = np.flatnonzero(fst.is_final)
    end = fst.num_states
    whole = Fst.from_arcs(
        fst.start,
        np.append(np.full(end, NOT_FINAL), 0.0),
        np.concatenate([fst.sources, finals]),
        _with_ends(fst.ilabels, len(finals)),
        np.concatenate([fst.weights, fst.finals[finals]]),
        np.concatenate([fst.nextstates, np.full(len(finals), end)]),
        _with_ends(fst.olabels, len(finals)) if fst.olabels is not fst.ilabels else None,
    )
    # Adding 0.0 turns -0.0, which has other bits, into 0.0.
    bits = (whole.weights + np.float32(0.0)).view(np.uint32).astype(np.int64)
    pairs = (_label_numbers(whole) << 32) | bits
    _, firsts, inverse = np.unique(pairs, return_index=True, return_inverse=True)
    by_first = np.argsort(firsts)
    numbers = np.empty(len(firsts), np.int32)
    numbers[by_first] = np.arange(1, len(firsts) + 1)
    chosen = firsts[by_first]
    outputs = None if whole.olabels is whole.ilabels else whole.olabels[chosen]
    codes = Codes(whole.ilabels[chosen], whole.weights[chosen], outputs)
    labels = numbers[inverse.reshape(-1)]
    weights = np.zeros(whole.num_arcs, np.float32)
    return replace(whole, ilabels=labels, olabels=labels, weights=weights), codes


def _with_ends(labels: NDArray[np.int32], num_finals: int) -> NDArray[np.int32]:
    return np.concatenate([labels, np.full(num_finals, _END, np.int32)])


def _label_numbers(fst: Fst) -> NDArray[np.int64]:
    """For each arc, a number of its label (acceptor) or pair of labels (transducer)."""
    if fst.olabels is fst.ilabels:
        return fst.ilabels.astype(np.int64)
    both = (fst.ilabels.astype(np.int64) << 32) | (fst.olabels.astype(np.int64) & 0xFFFFFFFF)
    return np.unique(both, return_inverse=True)[1].reshape(-1)


def decoded(fst: Fst, codes: Codes) -> Fst:
    """Replace the codes of an acceptor by labels and weights; the result is connected.

    Epsilon arcs to a final state without arcs become final weights.
    """
    numbers = fst.ilabels - 1
    labels, weights = _without_ends(codes.labels[numbers]), codes.weights[numbers]
    outputs = None if codes.olabels is None else _without_ends(codes.olabels[numbers])
    silent = labels == EPSILON if outputs is None else (labels == EPSILON) & (outputs == EPSILON)
    last = fst.is_final & (fst.counts == 0)
    to_end = silent & last[fst.nextstates]
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
            None if outputs is None else outputs[kept],
        )
    )


def _without_ends(labels: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.where(labels == _END, np.int32(EPSILON), labels)
