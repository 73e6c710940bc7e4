"""Cuts the supervision of an utterance to chunks (Kaldi's SupervisionSplitter)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nnet3tools.chain.supervision import Supervision
from nnet3tools.errors import DataError
from nnet3tools.fst.fst import NOT_FINAL, Fst


class SupervisionCutter:
    """Cuts an utterance's supervision to the chunks of its examples.

    DataError unless `supervision` is plain (not end to end) and of one sequence.
    """

    def __init__(self, supervision: Supervision) -> None:
        if supervision.is_e2e or supervision.num_sequences != 1:
            raise DataError("expected plain supervision of one sequence, to be cut to chunks")
        self._supervision = supervision
        self._times = supervision.state_times()

    def cut(self, first_frame: int, num_frames: int) -> Supervision:
        """The supervision of the `num_frames` frames from `first_frame` on.

        Its FST has epsilon arcs from a new start state to all states of the first frame. All paths
        end in one new final state.
        """
        ends = [first_frame, first_frame + num_frames]
        begin, end = np.searchsorted(self._times, ends).tolist()
        if begin == end:
            raise DataError(f"supervision has no frames from {first_frame} to {ends[1] - 1}")
        fst = self._supervision.fst
        firsts = np.flatnonzero(self._times[begin:end] == first_frame) + 1
        arcs = slice(fst.offsets[begin], fst.offsets[end])
        final = end - begin + 1
        targets = fst.nextstates[arcs]
        nothing = np.zeros(len(firsts), np.int32)
        finals = np.full(final + 1, NOT_FINAL, np.float32)
        finals[final] = 0.0
        piece = Fst.from_arcs(
            0,
            finals,
            np.concatenate([nothing, fst.sources[arcs] - begin + 1]),
            np.concatenate([nothing, fst.ilabels[arcs]]),
            np.concatenate([nothing.astype(np.float32), fst.weights[arcs]]),
            np.concatenate([firsts, np.where(targets >= end, final, targets - begin + 1)]),
        )
        return replace(self._supervision, fst=piece, frames_per_sequence=num_frames)
