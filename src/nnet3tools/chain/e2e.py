"""End-to-end supervisions: training graphs as acceptors of pdfs, without alignments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnet3tools import draws
from nnet3tools.chain.example import NnetChainExample, NnetChainSupervision, output_indexes
from nnet3tools.chain.normalization import Normalizer
from nnet3tools.chain.supervision import Supervision
from nnet3tools.errors import DataError
from nnet3tools.fst.connect import steps_from_start
from nnet3tools.fst.epsilon import remove_epsilons
from nnet3tools.fst.fst import EPSILON, Fst
from nnet3tools.fst.local_epsilon import remove_epsilons_locally
from nnet3tools.io import log
from nnet3tools.io.general_matrix import row_range
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.training.example import NnetIo, frames_io
from nnet3tools.training.splitting import ExampleGenerationOptions

__all__ = ["E2eExampleMaker", "pdf_acceptor"]

_MOST_FRAMES_OFF = 4
"""So many frames may be cut off or repeated at the end to reach an allowed length."""


def pdf_acceptor(graph: Fst, transition_model: TransitionModel) -> Fst | None:
    """The epsilon-free acceptor of pdfs plus one of a graph that reads transition ids.

    None, after a warning, if an epsilon remains on the input side, beside an output. DataError for
    labels that are no transition ids of the model.
    """
    fst = remove_epsilons(remove_epsilons_locally(graph))
    if (fst.ilabels == EPSILON).any():
        log.warning("Utterance rejected due to eps on input label")
        return None
    transition_model.check_transition_ids(fst.ilabels)
    return fst.relabelled(transition_model.pdfs_of_ids()[fst.ilabels] + np.int32(1))


def _least_duration(fst: Fst) -> int:
    """The number of arcs of the path to the final state that is best by that and its weight."""
    steps = steps_from_start(fst)
    costs = np.where(steps >= 0, steps + fst.finals.astype(np.float64), np.inf)
    return int(steps[np.argmin(costs)]) if len(costs) and np.isfinite(costs.min()) else -1


@dataclass(frozen=True)
class E2eExampleMaker:
    """Makes one example of each utterance; `normalizer`, if given, adds weights."""

    options: ExampleGenerationOptions
    transition_model: TransitionModel
    normalizer: Normalizer | None
    compress: bool

    def example(
        self,
        utterance: str,
        graph: Fst,
        features: NDArray[np.float32],
        draw_ivector: Callable[[int], NnetIo] | None,
        allowed_lengths: Sequence[int],
    ) -> NnetChainExample | None:
        """The example; None, after a warning, if its graph or length cannot be used.

        `draw_ivector(frame)` gives the i-vector of a chunk whose input starts at that frame.
        DataError if no allowed length is near the utterance's.
        """
        options, num_frames = self.options, len(features)
        extension = _extension(utterance, num_frames, allowed_lengths)
        factor = options.frame_subsampling_factor
        num_output = -(-(num_frames + extension) // factor)
        supervision = self._supervision(utterance, graph, num_output)
        if supervision is None:
            return None
        left, right = options.left_context_initial, options.right_context_final
        left = left if left >= 0 else options.left_context
        right = right if right >= 0 else options.right_context
        rows = row_range(features, -left, left + num_frames + right + extension)
        inputs = [frames_io("input", -left, rows)]
        draws.rand_int(0, 5)  # as for other chain examples: what is drawn later differs
        if draw_ivector is not None:
            inputs.append(draw_ivector(-left))
        indexes = output_indexes(1, num_output, 0, factor)
        weights = np.ones(num_output, np.float32)
        output = NnetChainSupervision("output", indexes, supervision, weights)
        example = NnetChainExample(inputs, [output])
        return example.compressed() if self.compress else example

    def _supervision(self, utterance: str, graph: Fst, num_output: int) -> Supervision | None:
        fst = pdf_acceptor(graph, self.transition_model)
        if fst is None:
            return None
        if (least := _least_duration(fst)) > num_output:
            log.warning(
                f"For utterance {utterance}, there are too many phones for too few frames; Number "
                f"of subsampled frames: {num_output}, Minimum number of frames required by the "
                f"fst: {least}"
            )
            return None
        num_pdfs = self.transition_model.num_pdfs
        supervision = Supervision(1.0, 1, num_output, num_pdfs, Fst.empty(), (fst,))
        if self.normalizer is None:
            return supervision
        normalized = self.normalizer.normalized(supervision)
        if normalized is None:
            log.warning(
                f"For utterance {utterance}, FST was empty after composing with normalization FST. "
                "This should be extremely rare (a few per corpus, at most)"
            )
        return normalized or supervision


def _extension(utterance: str, num_frames: int, allowed_lengths: Sequence[int]) -> int:
    """Frames to add at the end (less than 0: to cut off) to reach the nearest allowed length."""
    nearest = min(allowed_lengths, key=lambda length: abs(num_frames - length), default=0)
    off = num_frames - nearest
    if off == 0:
        return 0
    log.warning(
        f"No exact match found for the length of utt {utterance} which has length: {num_frames} "
        f"closest allowed length is off by {off} frames. Will try to fix it.."
    )
    if abs(off) > _MOST_FRAMES_OFF:
        raise DataError(
            f"utterance '{utterance}' has {num_frames} frames, none of --num-frames is within "
            f"{_MOST_FRAMES_OFF} of that: the nearest is {nearest}"
        )
    return -off
