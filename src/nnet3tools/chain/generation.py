"""Divides utterances into chunks and plans their chain examples (nnet3-chain-get-egs)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnet3tools import draws
from nnet3tools.chain.cutting import SupervisionCutter
from nnet3tools.chain.encoded_examples import EncodedSupervision
from nnet3tools.chain.example_plan import ExamplePlan
from nnet3tools.chain.normalization import Normalizer
from nnet3tools.chain.supervision import Supervision
from nnet3tools.io import log
from nnet3tools.io.encoded import EncodedRecord
from nnet3tools.io.general_matrix import GeneralMatrix
from nnet3tools.training.generation import IvectorSource
from nnet3tools.training.splitting import Chunk, UtteranceSplitter

_NO_SHARED_PATH = (
    "FST was empty after composing with normalization FST. This should be extremely rare (a few "
    "per corpus, at most)"
)


@dataclass(frozen=True)
class ChainExampleMaker:
    """Makes chain examples from chunks of utterances.

    `convert`, if given, turns a supervision of transition ids into an end-to-end one, or returns
    None after a warning. `normalizer`, if given, adds the weights of the normalization FST.
    """

    splitter: UtteranceSplitter
    compress: bool = True
    long_key: bool = False
    supervision_tolerance: int = 1
    convert: Callable[[Supervision], Supervision | None] | None = None
    normalizer: Normalizer | None = None
    ivectors: IvectorSource | None = None

    @property
    def _factor(self) -> int:
        return self.splitter.options.frame_subsampling_factor

    def lengths_match(self, utterance: UtteranceData) -> bool:
        """Whether features, supervision and derivative weights match in length; warns if not."""
        num_output = utterance.num_output
        tolerance, weights = self.supervision_tolerance, utterance.deriv_weights
        if weights is not None and abs(len(weights) - num_output) > tolerance:
            log.warning(
                f"For utterance {utterance.name}, mismatch between deriv-weights dim and "
                f"num-output-frames; {len(weights)} vs {num_output}"
            )
            return False
        num_frames = utterance.features.shape[0]
        return self.splitter.lengths_match(utterance.name, num_frames, num_output, tolerance)

    def chunks(self, utterance: str, num_frames: int) -> list[Chunk]:
        """The chunks of an utterance; none, with a warning, if it is too short."""
        chunks = self.splitter.split(num_frames)
        if not chunks:
            log.warning(
                f"Not producing egs for utterance {utterance} because it is too short: "
                f"{num_frames} frames."
            )
        return chunks

    def frames_with_output(self, features: GeneralMatrix, num_output: int) -> int:
        """The number of input frames that the `num_output` frames of the supervision cover."""
        return min(features.shape[0], num_output * self._factor)

    def frames_of(self, chunk: Chunk) -> tuple[int, int]:
        """The first output frame of a chunk and its number of output frames."""
        return chunk.first_frame // self._factor, chunk.num_frames // self._factor

    def plan(self, chunk: Chunk, utterance: UtteranceData, num_frames: int) -> ExamplePlan:
        """The plan of a chunk's example; draws the example's random numbers."""
        draws.rand_int(0, 5)  # Kaldi draws this number too, and later draws depend on it.
        start = chunk.first_frame - chunk.left_context
        num_rows = chunk.left_context + chunk.num_frames + chunk.right_context
        ivector = None
        if self.ivectors is not None and utterance.ivectors is not None:
            ivector = self.ivectors.draw(utterance.ivectors, start, num_frames)
        weights = self._weights(chunk, utterance.deriv_weights)
        return ExamplePlan(
            *(utterance.features, start, num_rows, chunk.left_context, ivector),
            *(self._factor, weights),
        )

    def _weights(self, chunk: Chunk, given: NDArray[np.float32] | None) -> NDArray[np.float32]:
        if given is None:
            return chunk.output_weights
        first, size = self.frames_of(chunk)
        weights = np.zeros(size, np.float32)
        there = given[first : first + size]
        weights[: len(there)] = there
        return weights * chunk.output_weights

    def key(self, utterance: str, chunk: Chunk) -> str:
        """The key of a chunk's example."""
        if not self.long_key:
            return f"{utterance}-{chunk.first_frame}"
        return (
            f"{utterance}-{chunk.first_frame}-{chunk.left_context}-{chunk.num_frames}-"
            f"{chunk.right_context}-v1"
        )

    def piece(self, utterance: str, chunk: Chunk, cutter: SupervisionCutter) -> Supervision | None:
        """The supervision that `cutter` cuts for a chunk; None, after a warning, if unusable."""
        piece: Supervision | None = cutter.cut(*self.frames_of(chunk))
        if self.convert is not None and piece is not None:
            piece = self.convert(piece)
        if piece is None or self.normalizer is None:
            return piece
        normalized = self.normalizer.normalized(piece)
        if normalized is None:
            log.warning(
                f"For utterance {utterance}, feature frames {chunk.first_frame} to "
                f"{chunk.first_frame + chunk.num_frames}, {_NO_SHARED_PATH}"
            )
        return normalized or piece


@dataclass(frozen=True, eq=False)
class UtteranceData:
    """The data of an utterance from which its examples are made."""

    name: str
    features: GeneralMatrix
    supervision: Supervision | EncodedSupervision
    deriv_weights: NDArray[np.float32] | None = None
    ivectors: NDArray[np.float32] | None = None

    @property
    def num_output(self) -> int:
        """The number of frames of the supervision."""
        given = self.supervision
        if isinstance(given, EncodedRecord):
            return given.layout.values["frames_per_sequence"]
        return given.frames_per_sequence

    def whole_supervision(self) -> Supervision:
        """The supervision of the whole utterance, decoded."""
        given = self.supervision
        return given.whole() if isinstance(given, EncodedRecord) else given
