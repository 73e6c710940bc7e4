"""The base classes of chain and discriminative examples, outputs and supervisions."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, field, replace
from nnet3tools.io.general_matrix import compress
from nnet3tools.io.record import RecordObject
from nnet3tools.nnet.indexes import IndexArray
from nnet3tools.training.example import NnetIo


@dataclass(frozen=True)
class SequenceSupervision(RecordObject):
    """`num_sequences` sequences of `frames_per_sequence` frames each, and their weight."""

    weight: float
    num_sequences: int
    frames_per_sequence: int

    @property
    def num_frames(self) -> int:
        """The number of frames of all sequences together."""
        return self.num_sequences * self.frames_per_sequence


S = TypeVar("S", bound=SequenceSupervision)


def output_indexes(
    num_sequences: int, frames_per_sequence: int, first_frame: int, frame_skip: int
) -> IndexArray:
    """The indexes of an output, (num_sequences * frames_per_sequence, 3).

    They are ordered by frame k, with t = first_frame + k * frame_skip, and then by sequence n.
    """
    indexes = np.zeros((frames_per_sequence, num_sequences, 3), np.int32)
    indexes[..., 0] = np.arange(num_sequences)
    indexes[..., 1] = (first_frame + frame_skip * np.arange(frames_per_sequence))[:, None]
    return indexes.reshape(-1, 3)


@dataclass(frozen=True)
class SequenceOutput(RecordObject, Generic[S]):
    """The name, indexes, supervision and derivative weights of one output.

    `indexes` (N, 3) are ordered by frame, and within a frame by sequence, as the rows of the
    network's output. `deriv_weights` (N,) scale each row's derivative; if empty, every weight is
    one.
    """

    name: str
    indexes: IndexArray
    supervision: S
    deriv_weights: NDArray[np.float32]

    @property
    def first_frame(self) -> int:
        """The t of the output's first row."""
        return int(self.indexes[0, 1])

    @property
    def frame_skip(self) -> int:
        """The increment of t between rows of a sequence: the frame subsampling factor."""
        return int(self.indexes[self.supervision.num_sequences, 1]) - self.first_frame

    def check(self) -> None:
        """Raise DataError if indexes, weights and number of frames do not agree."""
        if problem := self._rows_problem():
            raise DataError(f"'{self.name}' of an example has {problem}")

    def _rows_problem(self) -> str:
        """A text that says how indexes, weights and frames disagree; "" if they agree."""
        supervision, size = self.supervision, len(self.indexes)
        num_sequences, length = supervision.num_sequences, supervision.frames_per_sequence
        if size != supervision.num_frames or length < 2:
            return f"{size} rows for {num_sequences} sequences of {length} frames (at least 2)"
        expected = output_indexes(num_sequences, length, self.first_frame, self.frame_skip)
        if self.frame_skip <= 0 or not np.array_equal(self.indexes, expected):
            return "rows that are not in order of time and, in each frame, of sequences"
        if len(self.deriv_weights) not in (0, size):
            return f"{len(self.deriv_weights)} derivative weights for {size} rows"
        return ""


O = TypeVar("O", bound=SequenceOutput[Any])  # noqa: E741


@dataclass
class SequenceExample(RecordObject, Generic[O]):
    """The inputs and supervisions of a chunk, or of a minibatch."""

    inputs: list[NnetIo] = field(default_factory=list)
    outputs: list[O] = field(default_factory=list)

    def compressed(self) -> Self:
        """A copy whose full matrices are compressed."""
        inputs = [replace(io, features=compress(io.features)) for io in self.inputs]
        return type(self)(inputs, self.outputs)

    @property
    def size(self) -> int:
        """The largest number of rows of an input or output, as used by --minibatch-size rules."""
        sizes = [len(io.indexes) for io in self.inputs]
        return max(sizes + [len(output.indexes) for output in self.outputs])
