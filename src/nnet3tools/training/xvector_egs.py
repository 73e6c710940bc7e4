"""Makes examples for speaker recognition: chunks of features with speaker labels.

This is Kaldi's nnet3-xvector-get-egs. A ranges file lists the chunks, one per line:
`<utterance> <archive> <absolute-archive> <first-frame> <num-frames> <label>`.
"""

from collections.abc import Iterator

import numpy as np

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log
from nnet3tools.io.files import read_text_lines
from nnet3tools.io.general_matrix import check_finite
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.number_text import parse_counts
from nnet3tools.training.example import NnetExample, frames_io

_NUM_FIELDS = 6


@dataclass(frozen=True)
class ChunkInfo:
    """The key, output archive (from 0), frames and label of one x-vector example."""

    key: str
    archive: int
    first_frame: int
    num_frames: int
    label: int


def read_ranges(rxfilename: str, num_archives: int, num_labels: int) -> dict[str, list[ChunkInfo]]:
    """The chunks of each utterance in a ranges file; DataError names an invalid line."""
    chunks: dict[str, list[ChunkInfo]] = {}
    for number, line in enumerate(read_text_lines(rxfilename), start=1):
        fields = line.split()
        where = f"{rxfilename}: line {number}"
        if len(fields) != _NUM_FIELDS:
            raise DataError(f"{where}: expected {_NUM_FIELDS} fields, found {len(fields)}")
        utterance, archive, _, first, length, label = fields
        numbers = parse_counts((archive, first, length, label))
        if numbers is None:
            raise DataError(f"{where}: expected integers from 0 after the utterance: '{line[:99]}'")
        chunk = ChunkInfo(f"{utterance}-{first}-{length}-{label}", *numbers)
        if chunk.archive >= num_archives:
            raise DataError(
                f"{where}: archive {chunk.archive}, but there are {num_archives} outputs (from 0)"
            )
        if chunk.label >= num_labels:
            raise DataError(f"{where}: label {chunk.label} is not below --num-pdfs={num_labels}")
        if chunk.num_frames < 1:
            raise DataError(f"{where}: expected at least one frame")
        chunks.setdefault(utterance, []).append(chunk)
    return chunks


def examples_of_utterance(
    utterance: str, features: np.ndarray, chunks: list[ChunkInfo], num_labels: int
) -> Iterator[tuple[ChunkInfo, NnetExample]]:
    """Yield each of an utterance's chunks with its example.

    A chunk that ends beyond the utterance is shifted back. A chunk longer than the utterance is
    skipped with a warning. NotFiniteError if the features have NaN or infinity.
    """
    check_finite(f"features of utterance '{utterance}'", features)
    for chunk in chunks:
        if len(features) < chunk.num_frames:
            log.warning(
                f"Unable to create examples for utterance {utterance}. Requested chunk size of "
                f"{chunk.num_frames} but utterance has only {len(features)} frames."
            )
            continue
        first = min(chunk.first_frame, len(features) - chunk.num_frames)
        label = SparseMatrix.from_counts(
            np.array([1]), np.array([chunk.label]), np.ones(1, np.float32), num_labels
        )
        part = features[first : first + chunk.num_frames]
        yield chunk, NnetExample([frames_io("input", 0, part), frames_io("output", 0, label)])
