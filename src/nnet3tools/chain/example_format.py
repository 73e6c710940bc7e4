"""The format of chain examples and of their supervisions, and tables of both.

A new field of an example is added here.

This module does not load NumPy.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

from nnet3tools.fst.file_walks import walk_acceptor
from nnet3tools.io.byte_walk import ByteWalk
from nnet3tools.io.encoded import EncodedRecord, LayoutTable, encoded_holder
from nnet3tools.io.numpy_later import np
from nnet3tools.io.record import (
    CHAR_VECTOR,
    FLAG,
    FLOAT32,
    FLOAT_VECTOR,
    INDEXES,
    INT32,
    INT32_VECTOR,
    WORD,
    Field,
    Record,
    Repeated,
    ValueKind,
    Values,
    imported_later,
)
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.training.example_format import IO_RECORD

_MAX_SEQUENCES = 1_000_000
_MOST_USUAL_INPUTS = 1000
_LARGEST_STEP = 124
_INDEX = struct.Struct("<xxixixi")
"""An Index (n, t, x) in full, with a size byte before each number."""

_read_compact = imported_later("fst.compact_reader", "read_compact_acceptor")
_write_compact = imported_later("fst.binary_writer", "write_compact_acceptor")
_read_text = imported_later("fst.text_form", "read_fst_text")
_write_text = imported_later("fst.text_form", "write_fst_text")


def sequence_example_fields(output: Record) -> tuple[Field, ...]:
    """The fields of an example's record: inputs, and outputs in the form of the record `output`."""
    return (
        Repeated(
            "inputs",
            IO_RECORD,
            "<NumInputs>",
            usual=lambda count, _: 0 < count <= _MOST_USUAL_INPUTS,
            noun="inputs",
            newlines=True,
        ),
        Repeated(
            "outputs",
            output,
            "<NumOutputs>",
            usual=lambda count, _: count == 1,
            noun="outputs",
            newlines=True,
        ),
    )


def sequence_supervision_fields() -> tuple[Field, ...]:
    """The fields that begin the record of each supervision of sequences (chain, MMI)."""
    return (
        Field("weight", FLOAT32, "<Weight>"),
        Field(
            "num_sequences",
            INT32,
            "<NumSequences>",
            usual=lambda num, values: num == 1 or (num > 1 and "indexes" in values),
        ),
        Field(
            "frames_per_sequence",
            INT32,
            "<FramesPerSeq>",
            usual=lambda num, values: num > 0 and _fits(num, values),
        ),
    )


def _fits(num_frames: int, values: Values) -> bool:
    """Whether the "indexes" in `values` are those of `num_frames` frames of each sequence.

    That is: x = 0, t at equal distances and, for each t, the n of all sequences in order. True
    without indexes. The steps of t of a single sequence must fit into a byte.
    """
    indexes, num_sequences = values.get("indexes"), values["num_sequences"]
    if indexes is None:
        return True
    if not num_frames * num_sequences == indexes.num_rows > num_sequences:
        return False
    if num_sequences == 1:
        steps = (indexes.steps or b"")[1:]
        return 0 < len(steps) == steps.count(steps[0]) and 0 < steps[0] <= _LARGEST_STEP
    encoded = indexes.encoded
    if len(encoded) % _INDEX.size == 1:  # The first Index is stored as its t.
        encoded = _INDEX.pack(0, *struct.unpack_from("b", encoded), 0) + encoded[1:]
    if len(encoded) != _INDEX.size * indexes.num_rows:
        return False
    rows = list(_INDEX.iter_unpack(encoded))
    first, second = rows[0][1], rows[num_sequences][1]
    times = range(first, first + num_frames * (second - first), second - first or 1)
    return rows == [(n, t, 0) for t in times for n in range(num_sequences)]


def _sizes_problem(values: Values) -> str:
    num_sequences, num_frames = values["num_sequences"], values["frames_per_sequence"]
    label_dim = values["label_dim"]
    if 0 < num_sequences <= _MAX_SEQUENCES and num_frames > 0 and label_dim > 0:
        return ""
    return (
        f"expected a supervision, found one of {num_sequences} sequences of {num_frames} frames "
        f"with {label_dim} labels"
    )


class _Acceptors(Field):
    """The field of one acceptor or, in end-to-end supervision, of one acceptor per sequence."""

    def read(self, reader: Reader, values: Values, end: str) -> Any:
        """The acceptor or, if values["is_e2e"], a tuple of one per sequence; `end` is not used."""
        read = _read_compact if reader.binary else _read_text
        if not values["is_e2e"]:
            return read(reader)
        reader.expect_token("<Fsts>")
        acceptors = tuple([read(reader) for _ in range(values["num_sequences"])])
        reader.expect_token("</Fsts>")
        return acceptors

    def write(self, writer: Writer, value: Any) -> None:
        """Write the acceptor or, for end-to-end supervision, the tuple of acceptors."""
        write = _write_compact if writer.binary else _write_text
        if not isinstance(value, tuple):
            write(writer, value)
            return
        writer.write_token("<Fsts>")
        for acceptor in value:
            write(writer, acceptor)
        writer.write_token("</Fsts>")

    def steps(self, values: Values) -> Iterator[bytes | Field]:
        """As Field.steps, yield the field of acceptors, with <Fsts> around it if end-to-end."""
        if values["is_e2e"]:
            yield b"<Fsts> "
        yield self
        if values["is_e2e"]:
            yield b"</Fsts> "


def num_acceptors(values: Values) -> int:
    """The number of FSTs in a supervision record: one, or one for each sequence if end-to-end."""
    return values["num_sequences"] if values["is_e2e"] else 1


def _walk_acceptors(walk: ByteWalk, values: Values) -> None:
    begin = walk.at
    for _ in range(num_acceptors(values)):
        walk_acceptor(walk, values["label_dim"])
    walk.add_hole(begin)


SUPERVISION_RECORD = Record(
    "Supervision",
    (
        *sequence_supervision_fields(),
        Field(
            "label_dim", INT32, "<LabelDim>", usual=lambda dim, _: dim > 0, problem=_sizes_problem
        ),
        Field("is_e2e", FLAG, "<End2End>"),
        _Acceptors(
            "acceptors", ValueKind(_read_compact, _write_compact, _walk_acceptors), ends_layout=True
        ),
        Field("alignment_pdfs", INT32_VECTOR, "<AlignmentPdfs>", default=lambda: None, rare=True),
    ),
    ("chain.supervision", "Supervision"),
)
"""The supervision of one or more sequences."""


def _are_usual_weights(weights: tuple[float, ...], values: Values) -> bool:
    """Whether `weights` is empty or has a finite number >= 0 per row; `values`: other fields."""
    if not len(weights):
        return True
    is_one_per_row = len(weights) == values["num_sequences"] * values["frames_per_sequence"]
    return is_one_per_row and min(weights) >= 0.0 and math.isfinite(sum(weights))


CHAIN_OUTPUT_RECORD = Record(
    "NnetChainSup",
    (
        Field("name", WORD),
        Field("indexes", INDEXES),
        Field("supervision", SUPERVISION_RECORD),
        Field(
            "deriv_weights",
            FLOAT_VECTOR,
            "<DW2>",
            usual=_are_usual_weights,
            default=lambda: np.zeros(0, np.float32),
            older=(("<DW>", CHAR_VECTOR),),
        ),
    ),
    ("chain.example", "NnetChainSupervision"),
)
"""The chain supervision of one output."""

CHAIN_EXAMPLE_RECORD = Record(
    "Nnet3ChainEg",
    sequence_example_fields(CHAIN_OUTPUT_RECORD),
    ("chain.example", "NnetChainExample"),
)
"""A chain example."""

ACCEPTOR, DERIV_WEIGHTS = 0, 1
"""Positions in the `holes` of an encoded example."""

_SIZE_OF_FLOAT = 4


def supervision_weight(encoded: EncodedRecord[Any]) -> float:
    """The weight of the supervision in an encoded chain example or encoded output."""
    begin = encoded.holes[ACCEPTOR][0] - len(encoded.layout.fixed[-1]) - _SIZE_OF_FLOAT
    (weight,) = struct.unpack_from("<f", encoded.data, begin)
    return weight


CHAIN_LAYOUTS = LayoutTable(CHAIN_EXAMPLE_RECORD, imported_later("chain.native.entries", "scanner"))

ENCODED_CHAIN_EXAMPLES = encoded_holder("a chain example", CHAIN_LAYOUTS, CHAIN_EXAMPLE_RECORD)
"""The holder of tables of chain examples that are encoded where that is possible."""

ENCODED_SUPERVISIONS = encoded_holder(
    "a supervision", LayoutTable(SUPERVISION_RECORD), SUPERVISION_RECORD
)
"""The holder of tables of supervisions that are encoded where that is possible."""
