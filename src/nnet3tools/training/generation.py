"""Making examples of features and targets: nnet3-get-egs and nnet3-get-egs-dense-targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError, NotFiniteError
from nnet3tools.io import log
from nnet3tools.io.general_matrix import GeneralMatrix, check_finite, row_range
from nnet3tools.io.posterior import Posterior
from nnet3tools.training.example import NnetExample, NnetIo, frames_io
from nnet3tools.training.options import option
from nnet3tools.training.splitting import Chunk, UtteranceSplitter

__all__ = [
    "GetEgsOptions",
    "InputOptions",
    "IvectorSource",
    "MatrixTargets",
    "PosteriorTargets",
    "examples_of_utterance",
    "ivector_drawer",
    "make_examples",
]


@dataclass(frozen=True)
class InputOptions:
    """Options on the inputs of examples, which all programs that make examples have."""

    compress: bool = option(
        True,
        "If true, compress the features of the examples (features that are compressed already "
        "keep their format)",
    )
    ivectors: str = option("", "Alias for --online-ivectors, for back compatibility")
    online_ivectors: str = option("", "Rspecifier of iVector features, as a matrix")
    online_ivector_period: int = option(1, "Number of frames between iVectors")
    length_tolerance: int = option(
        100, "Tolerance for the difference in frames between features and iVectors"
    )

    @property
    def ivector_rspecifier(self) -> str:
        """Whichever of the two options is given."""
        return self.online_ivectors or self.ivectors


@dataclass(frozen=True)
class GetEgsOptions(InputOptions):
    """Options that both frame-level programs share beside the chunk options."""

    targets_length_tolerance: int = option(
        2, "Tolerance for the difference in frames (after subsampling) of features and targets"
    )


class Targets(Protocol):
    """The targets of one utterance."""

    def __len__(self) -> int:
        """Number of output frames."""

    def labels(self, chunk: Chunk, factor: int) -> NnetIo:
        """The 'output' of one chunk; `factor` is the frame subsampling factor."""


class PosteriorTargets:
    """Posteriors over pdfs: sparse targets, weighted down where chunks overlap."""

    def __init__(self, utterance: str, posterior: Posterior, num_pdfs: int) -> None:
        """DataError if a pdf of the posterior is not below `num_pdfs`."""
        wrong = posterior.pdfs[(posterior.pdfs < 0) | (posterior.pdfs >= num_pdfs)]
        if len(wrong):
            raise DataError(
                f"posterior of utterance '{utterance}' has pdf {wrong[0]}: expected "
                f"0 to {num_pdfs - 1} (--num-pdfs={num_pdfs})"
            )
        check_finite(f"posterior of utterance '{utterance}'", posterior.weights)
        self._num_frames = posterior.num_frames
        sparse = posterior.to_sparse(num_pdfs)
        # An empty row at the end stands for all frames that there are not.
        offsets = np.append(sparse.row_offsets, sparse.row_offsets[-1:])
        self._rows = replace(sparse, row_offsets=offsets)

    def __len__(self) -> int:
        """Number of frames."""
        return self._num_frames

    def labels(self, chunk: Chunk, factor: int) -> NnetIo:
        """Sparse rows for every `factor`-th frame; empty past the end of the posterior."""
        frames = np.arange(chunk.num_frames // factor) + chunk.first_frame // factor
        rows = self._rows.select_rows(np.minimum(frames * factor, self._num_frames))
        weights = chunk.output_weights[rows.row_numbers]
        return frames_io("output", 0, replace(rows, values=rows.values * weights), factor)


class MatrixTargets:
    """Real-valued targets: a dense matrix, one row a (subsampled) frame."""

    def __init__(self, utterance: str, targets: np.ndarray, num_targets: int) -> None:
        """DataError if there are no rows or `num_targets` >= 0 is not the number of columns."""
        if len(targets) == 0:
            raise DataError(f"target matrix of utterance '{utterance}' is empty")
        if num_targets >= 0 and targets.shape[1] != num_targets:
            raise DataError(
                f"targets of utterance '{utterance}' have {targets.shape[1]} columns: expected "
                f"--num-targets={num_targets}"
            )
        check_finite(f"targets of utterance '{utterance}'", targets)
        self._targets = targets

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._targets)

    def labels(self, chunk: Chunk, factor: int) -> NnetIo:
        """Rows of the chunk; the last row again where the targets are a little too short."""
        frames = np.arange(chunk.num_frames // factor) + chunk.first_frame // factor
        part = self._targets[np.minimum(frames, len(self._targets) - 1)]
        return frames_io("output", 0, part, factor)


class MatrixTable(Protocol):
    """Matrices by key: a dict, or a RandomAccessTableReader."""

    def get(self, key: str) -> np.ndarray | None:
        """The matrix, or None if the key is missing."""


class IvectorSource:
    """Online iVectors of utterances, one every `period` frames, to be drawn for each chunk."""

    def __init__(self, matrices: MatrixTable, period: int, tolerance: int) -> None:
        self._matrices, self._period, self._tolerance = matrices, period, tolerance

    def find(self, utterance: str, num_frames: int) -> np.ndarray | None:
        """The iVectors of an utterance; None, with a warning, if missing or of wrong length."""
        ivectors = self._matrices.get(utterance)
        if ivectors is None:
            log.warning(f"No iVectors for utterance {utterance}")
            return None
        if len(ivectors) == 0 or abs(num_frames - len(ivectors) * self._period) > self._tolerance:
            log.warning(
                f"Length difference between feats {num_frames} and iVectors {len(ivectors)} "
                f"exceeds tolerance {self._tolerance}"
            )
            return None
        return ivectors

    def draw(self, ivectors: np.ndarray, start_frame: int, num_frames: int) -> NnetIo:
        """The iVector at a random frame from `start_frame` on."""
        frame = tensor.random.rand_int(start_frame, start_frame + num_frames - 1)
        row = min(max(frame // self._period, 0), len(ivectors) - 1)
        return frames_io("ivector", 0, ivectors[row : row + 1])


def examples_of_utterance(
    utterance: str,
    features: GeneralMatrix,
    targets: Targets,
    splitter: UtteranceSplitter,
    compress: bool,
    ivectors: Callable[[int], NnetIo] | None = None,
) -> Iterator[tuple[str, NnetExample]]:
    """Keys and examples of the chunks of one utterance.

    `ivectors`, if given, gives the iVector of a chunk whose input starts at that frame. At its
    ends an utterance is padded with its first and last frame.
    """
    factor = splitter.options.frame_subsampling_factor
    chunks = splitter.split(features.shape[0])
    if not chunks:
        log.warning(
            f"Not producing egs for utterance {utterance} because it is too short: "
            f"{features.shape[0]} frames."
        )
    for chunk in chunks:
        start = chunk.first_frame - chunk.left_context
        num_rows = chunk.left_context + chunk.num_frames + chunk.right_context
        ios = [frames_io("input", -chunk.left_context, row_range(features, start, num_rows))]
        if ivectors is not None:
            ios.append(ivectors(start))
        ios.append(targets.labels(chunk, factor))
        example = NnetExample(ios)
        key = f"{utterance}-{chunk.first_frame}"
        yield key, example.compressed() if compress else example


def make_examples(
    features: Iterable[tuple[str, GeneralMatrix]],
    find_targets: Callable[[str], Targets | None],
    splitter: UtteranceSplitter,
    options: GetEgsOptions,
    ivectors: IvectorSource | None,
    write: Callable[[str, NnetExample], None],
) -> int:
    """Write the examples of all utterances; how many utterances had to be left out.

    `find_targets` gives an utterance's targets, or None, after a warning. Utterances with features,
    targets or i-vectors that are not finite are left out.
    """
    num_errors = 0
    for utterance, matrix in features:
        num_frames = matrix.shape[0]
        utterance_ivectors = None
        try:
            targets = find_targets(utterance)
            check_finite(f"features of utterance '{utterance}'", matrix)
            if targets is not None and ivectors is not None:
                utterance_ivectors = ivectors.find(utterance, num_frames)
            if utterance_ivectors is not None:
                check_finite(f"i-vectors of utterance '{utterance}'", utterance_ivectors)
        except NotFiniteError as error:
            log.skipped(error)
            num_errors += 1
            continue
        usable = targets is not None and (ivectors is None or utterance_ivectors is not None)
        if targets is None or not usable:
            num_errors += 1
            continue
        tolerance = options.targets_length_tolerance
        if not splitter.lengths_match(utterance, num_frames, len(targets), tolerance):
            num_errors += 1
            continue
        draw = ivector_drawer(ivectors, utterance_ivectors, num_frames)
        for key, example in examples_of_utterance(
            utterance, matrix, targets, splitter, options.compress, draw
        ):
            write(key, example)
    if num_errors:
        log.warning(f"{num_errors} utterances had errors and could not be processed.")
    return num_errors


def ivector_drawer(
    source: IvectorSource | None, ivectors: np.ndarray | None, num_frames: int
) -> Callable[[int], NnetIo] | None:
    """A function that draws an iVector for a chunk starting at a frame; None without iVectors."""
    if source is None or ivectors is None:
        return None
    return lambda start_frame: source.draw(ivectors, start_frame, num_frames)
