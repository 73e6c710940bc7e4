"""Examples of discriminative training (Kaldi's nnet-discriminative-example.h)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from nnet3tools.chain.example import output_indexes, read_ios, write_ios
from nnet3tools.discriminative.supervision import DiscriminativeSupervision
from nnet3tools.errors import ProgramError
from nnet3tools.io.char_vector import read_vector_as_char, write_vector_as_char
from nnet3tools.io.general_matrix import check_finite, compress
from nnet3tools.io.holders import Holder
from nnet3tools.io.index_vector import read_index_vector, write_index_vector
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.indexes import IndexArray
from nnet3tools.training.example import NnetExample, NnetIo

__all__ = [
    "DISCRIMINATIVE_EXAMPLE",
    "DISCRIMINATIVE_FRAMES",
    "DISCRIMINATIVE_MINIBATCH",
    "NnetDiscriminativeExample",
    "NnetDiscriminativeSupervision",
]


@dataclass(frozen=True)
class NnetDiscriminativeSupervision:
    """The supervision of one output.

    `indexes` (N, 3) run frame by frame and within a frame sequence by sequence, as the rows of the
    network's output do, while the supervision has sequence after sequence. `deriv_weights` (N,),
    from 0 to 1, scale each row's derivative, or are empty, which stands for ones.
    """

    name: str
    indexes: IndexArray
    supervision: DiscriminativeSupervision
    deriv_weights: NDArray[np.float32]

    @property
    def first_frame(self) -> int:
        """The t of the first row."""
        return int(self.indexes[0, 1])

    @property
    def frame_skip(self) -> int:
        """By how much t grows from row to row of a sequence: the frame subsampling factor."""
        return int(self.indexes[self.supervision.num_sequences, 1]) - self.first_frame

    def write(self, writer: Writer) -> None:
        """Write as Kaldi's `<NnetDiscriminativeSup>`."""
        writer.write_token("<NnetDiscriminativeSup>")
        writer.write_token(self.name)
        write_index_vector(writer, self.indexes)
        self.supervision.write(writer)
        writer.write_token("<DW>")
        write_vector_as_char(writer, self.deriv_weights)
        writer.write_token("</NnetDiscriminativeSup>")

    @classmethod
    def read(cls, reader: Reader) -> NnetDiscriminativeSupervision:
        """Read Kaldi's NnetDiscriminativeSupervision; DataError if its parts do not agree."""
        reader.expect_token("<NnetDiscriminativeSup>")
        name = reader.read_token()
        indexes = read_index_vector(reader)
        supervision = DiscriminativeSupervision.read(reader)
        reader.expect_token("<DW>")
        weights = read_vector_as_char(reader)
        reader.expect_token("</NnetDiscriminativeSup>")
        found = cls(name, indexes, supervision, weights)
        if problem := found._problem():
            raise reader.error(f"'{name}' of an example {problem}")
        return found

    def _problem(self) -> str:
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
        if not ((self.deriv_weights >= 0.0) & (self.deriv_weights <= 1.0)).all():
            return "has a derivative weight that is not from 0 to 1"
        return ""

    def check_finite(self) -> None:
        """NotFiniteError if the weight is NaN or infinite."""
        check_finite(f"weight of '{self.name}'", np.array([self.supervision.weight], np.float32))


@dataclass
class NnetDiscriminativeExample:
    """Inputs and supervisions that belong together: of a chunk, or a merged minibatch."""

    inputs: list[NnetIo] = field(default_factory=list)
    outputs: list[NnetDiscriminativeSupervision] = field(default_factory=list)

    def write(self, writer: Writer) -> None:
        """Write as Kaldi's `<Nnet3DiscriminativeEg>`."""
        writer.write_token("<Nnet3DiscriminativeEg>")
        write_ios(writer, self.inputs, self.outputs)
        writer.write_token("</Nnet3DiscriminativeEg>")

    @classmethod
    def read(cls, reader: Reader) -> NnetDiscriminativeExample:
        """Read Kaldi's NnetDiscriminativeExample."""
        reader.expect_token("<Nnet3DiscriminativeEg>")
        inputs, outputs = read_ios(reader, NnetDiscriminativeSupervision.read)
        reader.expect_token("</Nnet3DiscriminativeEg>")
        return cls(inputs, outputs)

    def compressed(self) -> NnetDiscriminativeExample:
        """A copy whose full matrices are compressed."""
        inputs = [replace(io, features=compress(io.features)) for io in self.inputs]
        return NnetDiscriminativeExample(inputs, self.outputs)

    @property
    def size(self) -> int:
        """The largest number of rows of any input or output, which --minibatch-size rules go by."""
        sizes = [len(io.indexes) for io in self.inputs]
        return max(sizes + [len(output.indexes) for output in self.outputs])


DISCRIMINATIVE_EXAMPLE: Holder[NnetDiscriminativeExample] = Holder(
    "a discriminative example",
    NnetDiscriminativeExample.read,
    lambda writer, example: example.write(writer),
)
"""The holder of tables of examples of discriminative training."""


def _read_minibatch(reader: Reader) -> NnetExample:
    example = NnetDiscriminativeExample.read(reader)
    return NnetExample(example.inputs, supervisions=tuple(example.outputs))


def _read_frames(reader: Reader) -> NnetExample:
    example = NnetDiscriminativeExample.read(reader)
    nothing = np.zeros((0, 0), np.float32)
    outputs = [NnetIo(output.name, output.indexes, nothing) for output in example.outputs]
    return NnetExample([*example.inputs, *outputs])


def _write_minibatch(writer: Writer, example: NnetExample) -> None:
    raise ProgramError("discriminative examples are written as NnetDiscriminativeExample")


DISCRIMINATIVE_MINIBATCH: Holder[NnetExample] = Holder(
    "a discriminative example", _read_minibatch, _write_minibatch
)
"""The same in the form that trainers and diagnostics take, to be read only."""

DISCRIMINATIVE_FRAMES: Holder[NnetExample] = Holder(
    "a discriminative example", _read_frames, _write_minibatch
)
"""The same without supervision: outputs are there for their frames only."""
