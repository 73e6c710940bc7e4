"""Makes examples of features and targets (nnet3-get-egs, nnet3-get-egs-dense-targets)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError, NotFiniteError
from nnet3tools.fast_dataclasses import replace
from nnet3tools.io import log
from nnet3tools.io.general_matrix import (
    GeneralMatrix,
    SparseMatrix,
    check_finite,
    row_range,
    to_dense,
)
from nnet3tools.io.posterior import Posterior
from nnet3tools.options import OptionGroup, option
from nnet3tools.training.example import NnetIo, frames_io
from nnet3tools.training.example_writer import ExampleGroup, Matrices, encoded_ios
from nnet3tools.training.splitting import UtteranceSplitter


class InputOptions(OptionGroup):
    """Options for the inputs of examples, common to all programs that make examples."""

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
        """The value of --online-ivectors or, if that is empty, of its alias --ivectors."""
        return self.online_ivectors or self.ivectors


class GetEgsOptions(InputOptions):
    """The options, except chunk options, of nnet3-get-egs and nnet3-get-egs-dense-targets."""

    targets_length_tolerance: int = option(
        2, "Tolerance for the difference in frames (after subsampling) of features and targets"
    )


class Targets(Protocol):
    """Interface of the training targets of one utterance."""

    def __len__(self) -> int:
        """Number of output frames."""

    def labels(self, frames: np.ndarray, weights: np.ndarray, factor: int) -> Matrices:
        """The targets of each chunk of a list of chunks of one size.

        `frames` are the numbers and `weights` the weights of their output frames, both
        (chunks, frames). `factor` is the frame subsampling factor.
        """


class PosteriorTargets:
    """Training targets that are posteriors over pdfs, with less weight where chunks overlap."""

    def __init__(self, utterance: str, posterior: Posterior, num_pdfs: int) -> None:
        """Store a posterior; DataError if a pdf in it is not below `num_pdfs`."""
        wrong = posterior.pdfs[(posterior.pdfs < 0) | (posterior.pdfs >= num_pdfs)]
        if len(wrong):
            raise DataError(
                f"posterior of utterance '{utterance}' has pdf {wrong[0]}: expected "
                f"0 to {num_pdfs - 1} (--num-pdfs={num_pdfs})"
            )
        check_finite(f"posterior of utterance '{utterance}'", posterior.weights)
        self._num_frames = posterior.num_frames
        sparse = posterior.to_sparse(num_pdfs)
        # All frames beyond the end use an empty last row.
        offsets = np.append(sparse.row_offsets, sparse.row_offsets[-1:])
        self._rows = replace(sparse, row_offsets=offsets)

    def __len__(self) -> int:
        """Number of frames."""
        return self._num_frames

    def labels(self, frames: np.ndarray, weights: np.ndarray, factor: int) -> SparseMatrix:
        """Sparse rows of every `factor`-th frame of each chunk; empty beyond the last frame."""
        rows = self._rows.select_rows(np.minimum(frames.ravel() * factor, self._num_frames))
        return replace(rows, values=rows.values * weights.ravel()[rows.row_numbers])


class MatrixTargets:
    """Training targets that are real numbers: a dense matrix with a row per subsampled frame."""

    def __init__(self, utterance: str, targets: np.ndarray, num_targets: int) -> None:
        """Store targets; DataError for no rows, or columns unlike `num_targets` if that is >= 0."""
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

    def labels(self, frames: np.ndarray, weights: np.ndarray, factor: int) -> np.ndarray:
        """The target rows of chunks; the last row is repeated beyond the utterance's end."""
        return self._targets[np.minimum(frames, len(self._targets) - 1)]


class MatrixTable(Protocol):
    """Matrices by key: a dict, or a RandomAccessTableReader."""

    def get(self, key: str) -> np.ndarray | None:
        """The matrix, or None if the key is missing."""


class IvectorSource:
    """Reads online iVectors of utterances (one per `period` frames) and draws one per chunk."""

    def __init__(self, matrices: MatrixTable, period: int, tolerance: int) -> None:
        self._matrices, self._period, self._tolerance = matrices, period, tolerance

    def find(self, utterance: str, num_frames: int) -> np.ndarray | None:
        """The iVectors of an utterance; None, after a warning, if absent or too few or too many."""
        if (ivectors := self._matrices.get(utterance)) is None:
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
        """The input 'ivector', one row, of a random frame of `num_frames` from `start_frame` on."""
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
) -> tuple[list[str], list[ExampleGroup]]:
    """(keys of an utterance's chunks, groups of their examples; a group's `places` index the keys).

    `ivectors(frame)`, if given, returns the iVector of a chunk whose input starts at that frame.
    The first and the last frame of the utterance are repeated beyond its ends.
    """
    chunks = splitter.chunks(utterance, features.shape[0])
    factor, firsts = chunks.factor, chunks.first_frames
    drawn = [ivectors(c.first_frame - c.left_context) for c in chunks] if ivectors else []
    groups = []
    for (num_frames, left, right), places in chunks.places().items():
        first, num = firsts[places, None], len(places)
        inputs = _inputs(features, first - left, left + num_frames + right)
        ios = [encoded_ios("input", -left, 1, inputs, num, compress)]
        if drawn:
            vectors = np.stack([to_dense(drawn[i].features) for i in places])
            ios.append(encoded_ios("ivector", 0, 1, vectors, num, compress))
        frames = first // factor + np.arange(num_frames // factor)
        labels = targets.labels(frames, chunks.frame_weights[frames], factor)
        ios.append(encoded_ios("output", 0, factor, labels, num, compress))
        groups.append(ExampleGroup(places, ios))
    return [f"{utterance}-{first}" for first in firsts.tolist()], groups


def _inputs(features: GeneralMatrix, starts: np.ndarray, num_rows: int) -> Matrices:
    """`num_rows` rows from each of `starts` (chunks, 1): an array (chunks, rows, dim) or a list."""
    if isinstance(features, np.ndarray) and len(features) and num_rows:
        return features[(starts + np.arange(num_rows)).clip(0, len(features) - 1)]
    return [row_range(features, start, num_rows) for start in starts[:, 0].tolist()]


def make_examples(
    features: Iterable[tuple[str, GeneralMatrix]],
    find_targets: Callable[[str], Targets | None],
    splitter: UtteranceSplitter,
    options: GetEgsOptions,
    ivectors: IvectorSource | None,
    write: Callable[[Sequence[str], Sequence[ExampleGroup]], None],
) -> int:
    """Write the examples of all utterances; returns the number of skipped utterances.

    `find_targets` returns an utterance's targets, or None after a warning. `write(keys, groups)`
    writes examples. Utterances whose features, targets or i-vectors are not finite are skipped.
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
        tolerance = options.targets_length_tolerance
        if (
            targets is None
            or (ivectors is not None and utterance_ivectors is None)
            or not splitter.lengths_match(utterance, num_frames, len(targets), tolerance)
        ):
            num_errors += 1
            continue
        draw = ivector_drawer(ivectors, utterance_ivectors, num_frames)
        write(*examples_of_utterance(utterance, matrix, targets, splitter, options.compress, draw))
    if num_errors:
        log.warning(f"{num_errors} utterances had errors and could not be processed.")
    return num_errors


def ivector_drawer(
    source: IvectorSource | None, ivectors: np.ndarray | None, num_frames: int
) -> Callable[[int], NnetIo] | None:
    """A function from a chunk's first frame to its random iVector; None without iVectors."""
    if source is None or ivectors is None:
        return None
    return lambda start_frame: source.draw(ivectors, start_frame, num_frames)
