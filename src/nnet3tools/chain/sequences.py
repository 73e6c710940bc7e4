"""What examples of chain and of discriminative training have in common: outputs of sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnet3tools.chain.sequence_supervision import SequenceSupervision
from nnet3tools.io.general_matrix import compress
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.indexes import IndexArray
from nnet3tools.training.example import NnetIo

__all__ = ["SequenceExample", "SequenceOutput", "output_indexes"]

_MAX_NUM_IO = 1_000_000


S = TypeVar("S", bound=SequenceSupervision)


def output_indexes(
    num_sequences: int, frames_per_sequence: int, first_frame: int, frame_skip: int
) -> IndexArray:
    """Frame after frame the sequences n = 0, 1, ..., (num_sequences * frames_per_sequence, 3)."""
    indexes = np.zeros((frames_per_sequence, num_sequences, 3), np.int32)
    indexes[..., 0] = np.arange(num_sequences)
    indexes[..., 1] = (first_frame + frame_skip * np.arange(frames_per_sequence))[:, None]
    return indexes.reshape(-1, 3)


@dataclass(frozen=True)
class SequenceOutput(Generic[S]):
    """The supervision of one output.

    `indexes` (N, 3) run frame by frame and within a frame sequence by sequence, as the rows of the
    network's output do; `deriv_weights` (N,) scale each row's derivative, or are empty, which
    stands for ones.
    """

    name: str
    indexes: IndexArray
    supervision: S
    deriv_weights: NDArray[np.float32]

    @property
    def first_frame(self) -> int:
        """The t of the first row."""
        return int(self.indexes[0, 1])

    @property
    def frame_skip(self) -> int:
        """By how much t grows from row to row of a sequence: the frame subsampling factor."""
        return int(self.indexes[self.supervision.num_sequences, 1]) - self.first_frame

    def rows_problem(self) -> str:
        """What is wrong with its sizes and indexes, "" if nothing is."""
        supervision, size = self.supervision, len(self.indexes)
        num_sequences, length = supervision.num_sequences, supervision.frames_per_sequence
        if size != supervision.num_frames or length < 2:
            return f"has {size} rows for {num_sequences} sequences of {length} frames (at least 2)"
        expected = output_indexes(num_sequences, length, self.first_frame, self.frame_skip)
        if self.frame_skip <= 0 or not np.array_equal(self.indexes, expected):
            return "has rows that are not in order of time and, in each frame, of sequences"
        if len(self.deriv_weights) not in (0, size):
            return f"has {len(self.deriv_weights)} derivative weights for {size} rows"
        return ""


O = TypeVar("O", bound=SequenceOutput[Any])  # noqa: E741


@dataclass
class SequenceExample(Generic[O]):
    """Inputs and supervisions that belong together: of a chunk, or a merged minibatch."""

    inputs: list[NnetIo] = field(default_factory=list)
    outputs: list[O] = field(default_factory=list)

    TOKEN: ClassVar[str]
    """Its name in files, as in <Name> and </Name>."""
    OUTPUT: ClassVar[type[Any]]
    """The class of its outputs, which has `read` and `write`."""

    def write(self, writer: Writer) -> None:
        """Write in Kaldi's form."""
        writer.write_token(f"<{self.TOKEN}>")
        parts: tuple[tuple[str, Sequence[Any]], ...] = (
            ("<NumInputs>", self.inputs),
            ("<NumOutputs>", self.outputs),
        )
        for token, entries in parts:
            writer.write_token(token)
            writer.write_int32(len(entries))
            writer.write_newline()
            for entry in entries:
                entry.write(writer)
                writer.write_newline()
        writer.write_token(f"</{self.TOKEN}>")

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read what `write` writes."""
        reader.expect_token(f"<{cls.TOKEN}>")
        reader.expect_token("<NumInputs>")
        inputs = [NnetIo.read(reader) for _ in range(_read_count(reader, "inputs"))]
        reader.expect_token("<NumOutputs>")
        outputs = [cls.OUTPUT.read(reader) for _ in range(_read_count(reader, "outputs"))]
        reader.expect_token(f"</{cls.TOKEN}>")
        return cls(inputs, outputs)

    def compressed(self) -> Self:
        """A copy whose full matrices are compressed."""
        inputs = [replace(io, features=compress(io.features)) for io in self.inputs]
        return type(self)(inputs, self.outputs)

    @property
    def size(self) -> int:
        """The largest number of rows of any input or output, which --minibatch-size rules go by."""
        sizes = [len(io.indexes) for io in self.inputs]
        return max(sizes + [len(output.indexes) for output in self.outputs])


def _read_count(reader: Reader, what: str) -> int:
    if not 0 < (count := reader.read_int32()) <= _MAX_NUM_IO:
        raise reader.error(f"an example cannot have {count} {what}")
    return count
