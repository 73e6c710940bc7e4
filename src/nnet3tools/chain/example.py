"""Examples of chain training: inputs with supervisions, `<Nnet3ChainEg>` (nnet-chain-example.h)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnet3tools.chain.supervision import Supervision
from nnet3tools.errors import quoted
from nnet3tools.io.char_vector import read_vector_as_char
from nnet3tools.io.general_matrix import compress
from nnet3tools.io.holders import Holder
from nnet3tools.io.index_vector import read_index_vector, write_index_vector
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.indexes import IndexArray
from nnet3tools.training.example import NnetIo

__all__ = [
    "CHAIN_EXAMPLE",
    "NnetChainExample",
    "NnetChainSupervision",
    "output_indexes",
    "read_ios",
    "write_ios",
]

S = TypeVar("S")


class Written(Protocol):
    """An input or output of an example."""

    def write(self, writer: Writer) -> None:
        """Write in Kaldi's form."""


_MAX_NUM_IO = 1_000_000


def output_indexes(
    num_sequences: int, frames_per_sequence: int, first_frame: int, frame_skip: int
) -> IndexArray:
    """Frame after frame the sequences n = 0, 1, ..., (num_sequences * frames_per_sequence, 3)."""
    indexes = np.zeros((frames_per_sequence, num_sequences, 3), np.int32)
    indexes[..., 0] = np.arange(num_sequences)
    indexes[..., 1] = (first_frame + frame_skip * np.arange(frames_per_sequence))[:, None]
    return indexes.reshape(-1, 3)


@dataclass(frozen=True)
class NnetChainSupervision:
    """The supervision of one output.

    `indexes` (N, 3) run frame by frame and within a frame sequence by sequence, as the rows of the
    network's output do; `deriv_weights` (N,) scale each row's derivative, or are empty, which
    stands for ones.
    """

    name: str
    indexes: IndexArray
    supervision: Supervision
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
        """Write as Kaldi's `<NnetChainSup>`."""
        writer.write_token("<NnetChainSup>")
        writer.write_token(self.name)
        write_index_vector(writer, self.indexes)
        self.supervision.write(writer)
        writer.write_token("<DW2>")
        writer.write_vector(self.deriv_weights)
        writer.write_token("</NnetChainSup>")

    @classmethod
    def read(cls, reader: Reader) -> NnetChainSupervision:
        """Read Kaldi's NnetChainSupervision, old ones too; DataError if its parts do not agree."""
        reader.expect_token("<NnetChainSup>")
        name = reader.read_token()
        indexes = read_index_vector(reader)
        supervision = Supervision.read(reader)
        weights = np.zeros(0, np.float32)
        if (token := reader.read_token()) != "</NnetChainSup>":
            if token == "<DW>":  # of older examples
                weights = read_vector_as_char(reader)
            elif token == "<DW2>":
                weights = reader.read_vector()
            else:
                raise reader.error(f"expected <DW2> or </NnetChainSup>, found {quoted(token)}")
            reader.expect_token("</NnetChainSup>")
        chain = cls(name, indexes, supervision, weights)
        if problem := chain._problem():
            raise reader.error(f"'{name}' of an example {problem}")
        return chain

    def _problem(self) -> str:
        """What is wrong with its sizes and indexes, "" if nothing is."""
        supervision, size = self.supervision, len(self.indexes)
        if size != supervision.num_frames or supervision.frames_per_sequence < 2:
            return (
                f"has {size} rows for {supervision.num_sequences} sequences of "
                f"{supervision.frames_per_sequence} frames (at least 2)"
            )
        expected = output_indexes(
            supervision.num_sequences,
            supervision.frames_per_sequence,
            self.first_frame,
            self.frame_skip,
        )
        if self.frame_skip <= 0 or not np.array_equal(self.indexes, expected):
            return "has rows that are not in order of time and, in each frame, of sequences"
        if len(self.deriv_weights) not in (0, size):
            return f"has {len(self.deriv_weights)} derivative weights for {size} rows"
        if (self.deriv_weights < 0.0).any():
            return "has a negative derivative weight"
        return ""


def write_ios(writer: Writer, inputs: Sequence[NnetIo], outputs: Sequence[Written]) -> None:
    """Write the inputs and outputs of an example of sequences, with their numbers."""
    parts: tuple[tuple[str, Sequence[Written]], ...] = (
        ("<NumInputs>", inputs),
        ("<NumOutputs>", outputs),
    )
    for token, entries in parts:
        writer.write_token(token)
        writer.write_int32(len(entries))
        writer.write_newline()
        for entry in entries:
            entry.write(writer)
            writer.write_newline()


def read_ios(reader: Reader, read_output: Callable[[Reader], S]) -> tuple[list[NnetIo], list[S]]:
    """Read what `write_ios` writes."""
    reader.expect_token("<NumInputs>")
    inputs = [NnetIo.read(reader) for _ in range(_read_count(reader, "inputs"))]
    reader.expect_token("<NumOutputs>")
    outputs = [read_output(reader) for _ in range(_read_count(reader, "outputs"))]
    return inputs, outputs


def _read_count(reader: Reader, what: str) -> int:
    if not 0 < (count := reader.read_int32()) <= _MAX_NUM_IO:
        raise reader.error(f"an example cannot have {count} {what}")
    return count


@dataclass
class NnetChainExample:
    """Inputs and chain supervisions that belong together: of a chunk, or a merged minibatch."""

    inputs: list[NnetIo] = field(default_factory=list)
    outputs: list[NnetChainSupervision] = field(default_factory=list)

    def write(self, writer: Writer) -> None:
        """Write as Kaldi's `<Nnet3ChainEg>`."""
        writer.write_token("<Nnet3ChainEg>")
        write_ios(writer, self.inputs, self.outputs)
        writer.write_token("</Nnet3ChainEg>")

    @classmethod
    def read(cls, reader: Reader) -> NnetChainExample:
        """Read Kaldi's NnetChainExample."""
        reader.expect_token("<Nnet3ChainEg>")
        inputs, outputs = read_ios(reader, NnetChainSupervision.read)
        reader.expect_token("</Nnet3ChainEg>")
        return cls(inputs, outputs)

    def compressed(self) -> NnetChainExample:
        """A copy whose full matrices are compressed."""
        inputs = [replace(io, features=compress(io.features)) for io in self.inputs]
        return NnetChainExample(inputs, self.outputs)

    @property
    def size(self) -> int:
        """The largest number of rows of any input or output, which --minibatch-size rules go by."""
        sizes = [len(io.indexes) for io in self.inputs]
        return max(sizes + [len(output.indexes) for output in self.outputs])


CHAIN_EXAMPLE: Holder[NnetChainExample] = Holder(
    "a chain example", NnetChainExample.read, lambda writer, example: example.write(writer)
)
"""The holder of tables of chain examples (Kaldi's KaldiObjectHolder<NnetChainExample>)."""
