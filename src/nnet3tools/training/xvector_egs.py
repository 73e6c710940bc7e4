"""Makes examples for speaker recognition: chunks of features with speaker labels.

This is Kaldi's nnet3-xvector-get-egs. A ranges file lists the chunks, one per line:
`<utterance> <archive> <absolute-archive> <first-frame> <num-frames> <label>`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log
from nnet3tools.io.files import read_text_lines
from nnet3tools.io.general_matrix import check_finite
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.io.table import TableWriter
from nnet3tools.number_text import parse_counts
from nnet3tools.training.example_writer import ExampleGroup, ExampleWriter, encoded_ios

_NUM_FIELDS = 6
_TOGETHER = 64
"""The number of examples that are compressed and written together."""


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
        if (numbers := parse_counts((archive, first, length, label))) is None:
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
    utterance: str, features: np.ndarray, chunks: list[ChunkInfo]
) -> Iterator[tuple[ChunkInfo, np.ndarray]]:
    """Yield each of an utterance's chunks with its rows of features.

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
        yield chunk, features[first : first + chunk.num_frames]


class SpeakerExampleWriter:
    """Writes chunks to tables, as examples with `num_labels` speakers; encodes many at a time."""

    def __init__(self, tables: Sequence[TableWriter[Any]], num_labels: int, compress: bool) -> None:
        self._writers = list(map(ExampleWriter, tables))
        self._num_labels, self._compress = num_labels, compress
        self._waiting: list[tuple[ChunkInfo, np.ndarray]] = []

    def write(self, chunk: ChunkInfo, rows: np.ndarray) -> None:
        """Write a chunk to its table, now or before `flush` returns."""
        self._waiting.append((chunk, rows))
        if len(self._waiting) >= _TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Write all waiting examples."""
        waiting, self._waiting = self._waiting, []
        for archive, writer in enumerate(self._writers):
            some = [one for one in waiting if one[0].archive == archive]
            lengths = np.array([len(rows) for _, rows in some])
            groups = []
            for length in np.unique(lengths):
                places = np.flatnonzero(lengths == length).tolist()
                num, rows = len(places), np.stack([some[i][1] for i in places])
                labels = [some[i][0].label for i in places]
                sparse = SparseMatrix.from_counts([1] * num, labels, [1] * num, self._num_labels)
                inputs = encoded_ios("input", 0, 1, rows, num, self._compress)
                outputs = encoded_ios("output", 0, 1, sparse, num, self._compress)
                groups.append(ExampleGroup(places, [inputs, outputs]))
            writer.write([chunk.key for chunk, _ in some], groups)
