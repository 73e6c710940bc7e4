"""The denominator graph: an HMM over all phone sequences (chain-den-graph.h)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError, naming
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.fst.files import load_fst
from nnet3tools.fst.fst import Fst
from nnet3tools.tensor.operators.leaky_hmm import Hmm

_NUM_STEPS = 100
"""Steps from the start over which the states' probabilities are averaged."""

_MOST_PROBABILITY = 100.0
"""The largest allowed sum of the probabilities of a state's arcs and final weight, as in Kaldi."""


@dataclass(frozen=True)
class DenominatorGraph:
    """The denominator FST as an HMM that emits `num_pdfs` pdfs; all states are final."""

    num_pdfs: int
    hmm: Hmm

    @property
    def initial_probs(self) -> NDArray[np.float32]:
        """The initial probability of each state, (N,)."""
        return self.hmm.initial

    @classmethod
    def from_fst(cls, fst: Fst, num_pdfs: int) -> DenominatorGraph:
        """The denominator graph from an epsilon-free acceptor whose labels are pdfs plus one.

        DataError if the FST has epsilons or is no acceptor, or if a label is above `num_pdfs`, as
        for another tree.
        """
        if not fst.num_states or not fst.num_arcs:
            raise DataError("the denominator FST is empty")
        fst.check_labels(num_pdfs, f"the denominator FST (for {num_pdfs} pdfs)")
        pdfs = fst.ilabels - np.int32(1)
        probs = np.exp(-fst.weights)
        return cls(num_pdfs, Hmm(fst.sources, fst.nextstates, pdfs, probs, initial_probs(fst)))


def initial_probs(fst: Fst) -> NDArray[np.float32]:
    """The probability of each state averaged over 100 steps from the start, (N,).

    The probabilities of a state's arcs and final weight are normalized to sum to 1, and so are the
    probabilities of all states after each step.
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
    """The graph read from a den.fst file; DataError names it if it does not fit `num_pdfs`."""
    fst = load_fst(rxfilename)
    with naming(rxfilename):
        return DenominatorGraph.from_fst(fst, num_pdfs)
