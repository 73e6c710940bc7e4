"""Makes discriminative examples of features, lattices and alignments."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nnet3tools import draws
from nnet3tools.chain.sequences import output_indexes
from nnet3tools.discriminative.example import (
    NnetDiscriminativeExample,
    NnetDiscriminativeSupervision,
)
from nnet3tools.discriminative.splitting import SplitOptions, SupervisionSplitter
from nnet3tools.discriminative.supervision import DiscriminativeSupervision
from nnet3tools.errors import DataError, NotFiniteError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log
from nnet3tools.io.general_matrix import GeneralMatrix, check_finite, row_range
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.training.example import frames_io
from nnet3tools.training.generation import IvectorSource
from nnet3tools.training.splitting import Chunk, UtteranceSplitter


@dataclass(frozen=True)
class DiscriminativeExampleMaker:
    """Makes discriminative examples from chunks of utterances."""

    splitter: UtteranceSplitter
    options: SplitOptions
    model: TransitionModel
    compress: bool = True
    ivectors: IvectorSource | None = None

    def add(
        self,
        utterance: str,
        features: GeneralMatrix,
        supervision: DiscriminativeSupervision,
        write: Callable[[str, NnetDiscriminativeExample], None],
    ) -> bool:
        """Write an example for each chunk of an utterance, or warn that it is too short.

        Returns False, after a warning, if the i-vectors or the supervision do not fit the features.
        """
        num_frames, ivectors = features.shape[0], None
        if self.ivectors is not None:
            if (ivectors := self.ivectors.find(utterance, num_frames)) is None:
                return False
        length = supervision.frames_per_sequence
        if not self.splitter.lengths_match(utterance, num_frames, length, 0):
            return False
        if not (chunks := self.splitter.chunks(utterance, num_frames)):
            return True
        cutter = SupervisionSplitter(self.options, self.model, supervision)
        examples = []
        for number, chunk in enumerate(chunks):
            output = self._output(chunk, cutter, normalize=number > 0)
            draws.rand_int(0, 5)  # Kaldi draws this number too, and later draws depend on it.
            start = chunk.first_frame - chunk.left_context
            num_rows = chunk.left_context + chunk.num_frames + chunk.right_context
            rows = row_range(features, start, num_rows)
            inputs = [frames_io("input", -chunk.left_context, rows)]
            if self.ivectors is not None and ivectors is not None:
                inputs.append(self.ivectors.draw(ivectors, start, num_frames))
            example = NnetDiscriminativeExample(inputs, [output])
            examples.append(example.compressed() if self.compress else example)
        for chunk, example in zip(chunks, examples, strict=True):
            write(f"{utterance}-{chunk.first_frame}", example)
        return True

    def _output(
        self, chunk: Chunk, cutter: SupervisionSplitter, normalize: bool
    ) -> NnetDiscriminativeSupervision:
        factor = self.splitter.options.frame_subsampling_factor
        size = chunk.num_frames // factor
        piece = cutter.piece(chunk.first_frame // factor, size, normalize)
        indexes = output_indexes(1, size, 0, factor)
        return NnetDiscriminativeSupervision("output", indexes, piece, chunk.output_weights)


def make_discriminative_examples(
    features: Iterable[tuple[str, GeneralMatrix]],
    find: Callable[[str], DiscriminativeSupervision | None],
    maker: DiscriminativeExampleMaker,
    write: Callable[[str, NnetDiscriminativeExample], None],
) -> None:
    """Write the discriminative examples of all utterances.

    `find(utterance)` returns the utterance's data, or None after a warning. Utterances whose
    features are not finite, or whose supervision does not fit them, are left out with a warning.
    """
    num_errors = 0
    for utterance, matrix in features:
        try:
            supervision = find(utterance)
            check_finite(f"features of utterance '{utterance}'", matrix)
            made = supervision is not None and maker.add(utterance, matrix, supervision, write)
        except NotFiniteError as error:
            log.skipped(error)
            made = False
        except DataError as error:
            log.warning(f"Not producing egs for utterance {utterance}: {error}")
            made = False
        num_errors += not made
    if num_errors:
        log.warning(f"{num_errors} utterances had errors and could not be processed.")
