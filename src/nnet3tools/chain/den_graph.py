"""The denominator graph: an HMM over all that may be said (chain-den-graph.h)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError, naming
from nnet3tools.fst.files import load_fst
from nnet3tools.fst.fst import Fst

__all__ = ["DenominatorGraph", "Transitions", "initial_probs", "load_denominator_graph"]

_NUM_STEPS = 100
"""Steps from the start over which the states' probabilities are averaged."""

_MOST_PROBABILITY = 100.0
"""A state's arcs and final weight together cannot have more, as in Kaldi."""


@dataclass(frozen=True)
class Transitions:
    """A graph's transitions, those of state s being `offsets[s]` to `offsets[s + 1]`.

    `states` (A,) are the states at their other end, `pdfs` (A,) what they emit, `probs` (A,) their
    probabilities.
    """

    offsets: NDArray[np.int32]
    states: NDArray[np.int32]
    pdfs: NDArray[np.int32]
    probs: NDArray[np.float32]


@dataclass(frozen=True)
class DenominatorGraph:
    """`forward`: transitions by the state they leave; `backward`: by the state they enter.

    Both hold the same transitions; those of a state keep the order of the FST (for `backward`, of
    source states). `initial_probs` (N,) are used both to begin and as the leaky HMM's distribution.
    """

    num_pdfs: int
    forward: Transitions
    backward: Transitions
    initial_probs: NDArray[np.float32]

    @property
    def num_states(self) -> int:
        """N."""
        return len(self.initial_probs)

    @property
    def num_transitions(self) -> int:
        """A."""
        return len(self.forward.states)

    @classmethod
    def from_fst(cls, fst: Fst, num_pdfs: int) -> DenominatorGraph:
        """The graph of an epsilon-free acceptor whose labels are pdfs plus one.

        DataError if it is none, or has pdfs that the model, with `num_pdfs`, lacks: that of another
        tree.
        """
        if not fst.num_states or not fst.num_arcs:
            raise DataError("the denominator FST is empty")
        fst.check_labels(num_pdfs, f"the denominator FST (for {num_pdfs} pdfs)")
        pdfs = fst.ilabels - np.int32(1)
        probs = np.exp(-fst.weights)
        order = np.argsort(fst.nextstates, kind="stable")
        counts = np.bincount(fst.nextstates, minlength=fst.num_states)
        into = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return cls(
            num_pdfs,
            Transitions(fst.offsets.astype(np.int32), fst.nextstates, pdfs, probs),
            Transitions(into, fst.sources[order], pdfs[order], probs[order]),
            initial_probs(fst),
        )


def initial_probs(fst: Fst) -> NDArray[np.float32]:
    """The probability of each state averaged over 100 steps from the start, (N,).

    Each state's arcs and final weight are made to sum to one for this, and the states at each step.
    """
    probs = np.exp(-fst.weights.astype(np.float64))
    totals = np.exp(-fst.finals.astype(np.float64))
    totals += np.bincount(fst.sources, probs, fst.num_states)
    wrong = np.flatnonzero(~((totals > 0.0) & (totals < _MOST_PROBABILITY)))
    if len(wrong):
        raise DataError(
            f"the denominator FST's state {wrong[0]} has arcs and final weight of probability "
            f"{totals[wrong[0]]:g} in all: expected more than 0 and less than {_MOST_PROBABILITY:g}"
        )
    step = probs / totals[fst.sources]
    current: NDArray[np.float64] = np.zeros(fst.num_states)
    current[fst.start] = 1.0
    average = np.zeros(fst.num_states)
    for _ in range(_NUM_STEPS):
        average += current / _NUM_STEPS
        moved = current[fst.sources] * step
        current = np.bincount(fst.nextstates, moved, fst.num_states).astype(np.float64)
        if not (total := current.sum()) > 0.0:
            raise DataError("the denominator FST has a path that ends: expected one without end")
        current /= total
    return average.astype(np.float32)


def load_denominator_graph(rxfilename: str, num_pdfs: int) -> DenominatorGraph:
    """The graph in a den.fst; DataError, naming the file, if it does not fit the model."""
    fst = load_fst(rxfilename)
    with naming(rxfilename):
        return DenominatorGraph.from_fst(fst, num_pdfs)
