"""Decoding graphs (HCLG, training graphs) prepared for the search."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.fst.fst import EPSILON, NO_STATE, Fst
from nnet3tools.nnet.hmm.transition_model import TransitionModel


@dataclass(frozen=True)
class DecodingGraph:
    """An FST with transition ids as input labels, prepared for search.

    Its arrays are not copied. `pdfs` maps transition ids to the network's outputs. `has_epsilon`
    (N,) flags the states with epsilon arcs, which read no frame.
    """

    fst: Fst
    pdfs: NDArray[np.int32]
    has_epsilon: NDArray[np.bool_]

    @classmethod
    def of(cls, fst: Fst, model: TransitionModel, name: str) -> DecodingGraph:
        """Prepare an FST, whose input labels are transition ids of `model`, for the search.

        DataError, with the FST's `name`, for an empty FST or input labels that are not the model's
        ids.
        """
        cls.check(fst, model, name)
        arcs = np.flatnonzero(fst.ilabels == EPSILON)
        has_epsilon = np.zeros(fst.num_states, bool)
        has_epsilon[np.searchsorted(fst.offsets, arcs, side="right") - 1] = True
        return cls(fst, model.pdfs_of_ids().astype(np.int32), has_epsilon)

    @classmethod
    def check(cls, fst: Fst, model: TransitionModel, name: str) -> None:
        """Raise DataError for an empty FST, or for input labels that are not the model's ids."""
        if fst.start == NO_STATE:
            raise DataError(f"{name}: the decoding graph is empty")
        largest = int(fst.ilabels.max(initial=0))
        if largest > model.num_transition_ids:
            raise DataError(
                f"{name}: the decoding graph has transition id {largest}, the model has ids from 1 "
                f"to {model.num_transition_ids}: was the graph made for another model?"
            )
        without_pdf = model.pdfs_of_ids() < 0
        without_pdf[EPSILON] = False
        if without_pdf.any() and (used := without_pdf[fst.ilabels]).any():
            wrong = int(fst.ilabels[used][0])
            raise DataError(
                f"{name}: the decoding graph has transition id {wrong}, for which the model has "
                f"pdf {model.pdfs_of_ids()[wrong]}: expected one from 0 on"
            )

    @cached_property
    def num_pdfs(self) -> int:
        """The least number of network outputs that the graph's transition ids require."""
        return int(self.pdfs.max(initial=-1)) + 1

    def check_outputs(self, loglikes: NDArray[np.float32]) -> None:
        """Raise DataError if `loglikes` (frames, pdfs) have too few columns for the graph."""
        if (num_columns := loglikes.shape[1]) < self.num_pdfs:
            raise DataError(
                f"the model has {self.num_pdfs} pdfs, the network {num_columns} outputs"
            )

    @property
    def num_states(self) -> int:
        """Number of states of the graph, N."""
        return self.fst.num_states

    @property
    def num_bytes(self) -> int:
        """Bytes of memory that the FST's arrays occupy."""
        return self.fst.num_bytes

    @property
    def finals(self) -> NDArray[np.float32]:
        """Final cost of each state, (N,); infinite for states that are not final."""
        return self.fst.finals

    def leaving(
        self, states: NDArray[np.int32], tokens: NDArray[np.intp], *, epsilon: bool
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Arrays (tokens[i], arc number), one entry for each arc that leaves states[i].

        With `epsilon` only epsilon arcs count, else only arcs with transition ids.
        """
        firsts = self.fst.offsets[states]
        counts = self.fst.offsets[states + 1] - firsts
        ends = np.cumsum(counts)
        size = int(ends[-1]) if len(ends) else 0
        arcs = np.arange(size) + np.repeat(firsts - ends + counts, counts)
        chosen = (self.fst.ilabels[arcs] == EPSILON) == epsilon
        return np.repeat(tokens, counts)[chosen], arcs[chosen]
