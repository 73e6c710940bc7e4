"""Decoding graphs (HCLG, training graphs) as the decoder wants them: arcs by kind, CSR arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.fst.fst import EPSILON, NO_STATE, Fst
from nnet3tools.nnet.hmm.transition_model import TransitionModel

__all__ = ["ArcTable", "DecodingGraph"]


@dataclass(frozen=True)
class ArcTable:
    """Arcs of one kind; those of state s are `firsts[s]` and the `counts[s] - 1` after it.

    `ilabels` are transition ids (0 on epsilon arcs), `pdfs` their columns of the network's output.
    """

    firsts: NDArray[np.int64]
    counts: NDArray[np.int64]
    ilabels: NDArray[np.int32]
    pdfs: NDArray[np.int32]
    olabels: NDArray[np.int32]
    weights: NDArray[np.float32]
    nextstates: NDArray[np.int32]

    @classmethod
    def of(cls, fst: Fst, chosen: NDArray[np.bool_], pdfs: NDArray[np.int32]) -> ArcTable:
        """The arcs of a mask (A,); `pdfs` is by transition id."""
        places = np.flatnonzero(chosen)
        counts = np.bincount(fst.sources[places], minlength=fst.num_states)
        return cls(
            np.cumsum(counts) - counts,
            counts,
            fst.ilabels[places],
            pdfs[fst.ilabels[places]],
            fst.olabels[places],
            fst.weights[places],
            fst.nextstates[places],
        )

    def leaving(
        self, states: NDArray[np.int32], tokens: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """All arcs that leave some states: for each, its element of `tokens`, and its place."""
        counts = self.counts[states]
        ends = np.cumsum(counts)
        size = int(ends[-1]) if len(ends) else 0
        arcs = np.arange(size) + np.repeat(self.firsts[states] - ends + counts, counts)
        return np.repeat(tokens, counts), arcs


@dataclass(frozen=True)
class DecodingGraph:
    """The arcs that read a frame, those that read nothing, and final costs (N,)."""

    start: int
    finals: NDArray[np.float32]
    emitting: ArcTable
    epsilon: ArcTable

    @classmethod
    def of(cls, fst: Fst, model: TransitionModel, name: str) -> DecodingGraph:
        """Of an FST whose input labels are transition ids of the model.

        DataError as of `check`; `name` is what the FST is called.
        """
        cls.check(fst, model, name)
        emits = fst.ilabels != EPSILON
        pdfs = model.pdfs_of_ids()
        return cls(
            fst.start, fst.finals, ArcTable.of(fst, emits, pdfs), ArcTable.of(fst, ~emits, pdfs)
        )

    @classmethod
    def check(cls, fst: Fst, model: TransitionModel, name: str) -> None:
        """DataError for an empty FST, or one made for another model."""
        if fst.start == NO_STATE:
            raise DataError(f"{name}: the decoding graph is empty")
        largest = int(fst.ilabels.max(initial=0))
        if largest > model.num_transition_ids:
            raise DataError(
                f"{name}: the decoding graph has transition id {largest}, the model has ids from 1 "
                f"to {model.num_transition_ids}: was the graph made for another model?"
            )

    @property
    def num_states(self) -> int:
        """N."""
        return len(self.finals)
