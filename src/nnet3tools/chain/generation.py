"""Making chain examples of features and supervisions: nnet3-chain-get-egs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnet3tools import draws
from nnet3tools.chain.cutting import SupervisionCutter
from nnet3tools.chain.example import NnetChainExample, NnetChainSupervision, output_indexes
from nnet3tools.chain.normalization import Normalizer
from nnet3tools.chain.supervision import Supervision
from nnet3tools.errors import NotFiniteError, naming
from nnet3tools.io import log
from nnet3tools.io.general_matrix import GeneralMatrix, check_finite, row_range
from nnet3tools.training.example import frames_io
from nnet3tools.training.generation import IvectorSource
from nnet3tools.training.splitting import Chunk, UtteranceSplitter

__all__ = ["ChainExampleMaker", "UtteranceData", "make_chain_examples"]

_NO_SHARED_PATH = (
    "FST was empty after composing with normalization FST. This should be extremely rare (a few "
    "per corpus, at most)"
)


@dataclass(frozen=True)
class ChainExampleMaker:
    """How the examples of an utterance are made.

    `convert`, if given, turns a supervision of transition ids into an end-to-end one, or gives None
    after a warning; `normalizer`, if given, adds weights.
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

    def lengths_match(
        self, utterance: str, num_frames: int, supervision: Supervision, num_weights: int | None
    ) -> bool:
        """Whether features, supervision and derivative weights go together; warns if not."""
        num_output, tolerance = supervision.frames_per_sequence, self.supervision_tolerance
        if num_weights is not None and abs(num_weights - num_output) > tolerance:
            log.warning(
                f"For utterance {utterance}, mismatch between deriv-weights dim and "
                f"num-output-frames; {num_weights} vs {num_output}"
            )
            return False
        return self.splitter.lengths_match(utterance, num_frames, num_output, tolerance)

    def examples(
        self,
        utterance: str,
        features: GeneralMatrix,
        supervision: Supervision,
        deriv_weights: NDArray[np.float32] | None,
        ivectors: NDArray[np.float32] | None,
    ) -> Iterator[tuple[str, NnetChainExample]]:
        """Keys and examples of the chunks of an utterance; none, with a warning, if too short."""
        # There is no supervision beyond its end, whatever the tolerance.
        num_frames = min(features.shape[0], supervision.frames_per_sequence * self._factor)
        chunks = self.splitter.split(num_frames)
        if not chunks:
            log.warning(
                f"Not producing egs for utterance {utterance} because it is too short: "
                f"{num_frames} frames."
            )
            return
        cutter = SupervisionCutter(supervision)
        for chunk in chunks:
            output = self._output(utterance, chunk, cutter, deriv_weights)
            if output is None:
                continue
            draws.rand_int(0, 5)  # whether Kaldi checks the supervision: sizes drawn later differ
            start = chunk.first_frame - chunk.left_context
            num_rows = chunk.left_context + chunk.num_frames + chunk.right_context
            rows = row_range(features, start, num_rows)
            inputs = [frames_io("input", -chunk.left_context, rows)]
            if self.ivectors is not None and ivectors is not None:
                inputs.append(self.ivectors.draw(ivectors, start, num_frames))
            example = NnetChainExample(inputs, [output])
            yield self._key(utterance, chunk), example.compressed() if self.compress else example

    def _key(self, utterance: str, chunk: Chunk) -> str:
        if not self.long_key:
            return f"{utterance}-{chunk.first_frame}"
        return (
            f"{utterance}-{chunk.first_frame}-{chunk.left_context}-{chunk.num_frames}-"
            f"{chunk.right_context}-v1"
        )

    def _output(
        self,
        utterance: str,
        chunk: Chunk,
        cutter: SupervisionCutter,
        deriv_weights: NDArray[np.float32] | None,
    ) -> NnetChainSupervision | None:
        first = chunk.first_frame // self._factor
        size = chunk.num_frames // self._factor
        piece: Supervision | None = cutter.cut(first, size)
        if self.convert is not None and piece is not None:
            piece = self.convert(piece)
        if piece is None:
            return None
        if self.normalizer is not None:
            normalized = self.normalizer.normalized(piece)
            if normalized is None:
                log.warning(
                    f"For utterance {utterance}, feature frames {chunk.first_frame} to "
                    f"{chunk.first_frame + chunk.num_frames}, {_NO_SHARED_PATH}"
                )
            piece = normalized or piece
        weights = chunk.output_weights
        if deriv_weights is not None:
            given = np.zeros(size, np.float32)
            there = deriv_weights[first : first + size]
            given[: len(there)] = there
            weights = given * weights
        indexes = output_indexes(1, size, 0, self._factor)
        return NnetChainSupervision("output", indexes, piece, weights)


@dataclass(frozen=True)
class UtteranceData:
    """What beside its features examples of an utterance are made of."""

    supervision: Supervision
    deriv_weights: NDArray[np.float32] | None = None
    ivectors: NDArray[np.float32] | None = None


def make_chain_examples(
    features: Iterable[tuple[str, GeneralMatrix]],
    find: Callable[[str, int], UtteranceData | None],
    maker: ChainExampleMaker,
    write: Callable[[str, NnetChainExample], None],
) -> None:
    """Write the examples of all utterances.

    `find(utterance, number of frames)` gives what belongs to the features, or None after a warning.
    Utterances whose features are not finite, or whose lengths do not match, are left out.
    """
    num_errors = 0
    for utterance, matrix in features:
        num_frames = matrix.shape[0]
        data = find(utterance, num_frames)
        try:
            check_finite(f"features of utterance '{utterance}'", matrix)
        except NotFiniteError as error:
            log.skipped(error)
            data = None
        if data is None:
            num_errors += 1
            continue
        num_weights = None if data.deriv_weights is None else len(data.deriv_weights)
        if not maker.lengths_match(utterance, num_frames, data.supervision, num_weights):
            num_errors += 1
            continue
        count = 0
        with naming(f"utterance '{utterance}'"):
            for key, example in maker.examples(
                utterance, matrix, data.supervision, data.deriv_weights, data.ivectors
            ):
                write(key, example)
                count += 1
        num_errors += count == 0
    if num_errors:
        log.warning(f"{num_errors} utterances had errors and could not be processed.")
