"""The format of examples of discriminative training and of their supervisions."""

from __future__ import annotations

from dataclasses import replace

from nnet3tools.chain.example_format import sequence_example_fields, sequence_supervision_fields
from nnet3tools.fst.lattice_files import read_lattice, write_lattice
from nnet3tools.io.record import (
    CHAR_VECTOR,
    INDEXES,
    INT32_VECTOR,
    WORD,
    Field,
    Record,
    ValueKind,
    Values,
)

_DIGITS = 7
"""The digits of costs in text."""


def _sizes_problem(values: Values) -> str:
    num_sequences, num_frames = values["num_sequences"], values["frames_per_sequence"]
    if num_sequences > 0 and num_frames > 0:
        return ""
    return f"expected a supervision, found one of {num_sequences} sequences of {num_frames} frames"


*_FIRST, _FRAMES = sequence_supervision_fields()

DISCRIMINATIVE_SUPERVISION_RECORD = Record(
    "DiscriminativeSupervision",
    (
        *_FIRST,
        replace(_FRAMES, problem=_sizes_problem),
        Field("num_ali", INT32_VECTOR, "<NumAli>"),
        Field(
            "den_lat",
            ValueKind(read_lattice, lambda writer, value: write_lattice(writer, value, _DIGITS)),
            "<DenLat>",
        ),
    ),
    ("discriminative.supervision", "DiscriminativeSupervision"),
)
"""The supervision: the numerator's alignment and the denominator's lattice."""

DISCRIMINATIVE_OUTPUT_RECORD = Record(
    "NnetDiscriminativeSup",
    (
        Field("name", WORD),
        Field("indexes", INDEXES),
        Field("supervision", DISCRIMINATIVE_SUPERVISION_RECORD),
        Field("deriv_weights", CHAR_VECTOR, "<DW>"),
    ),
    ("discriminative.example", "NnetDiscriminativeSupervision"),
)
"""The supervision of one output."""

DISCRIMINATIVE_EXAMPLE_RECORD = Record(
    "Nnet3DiscriminativeEg",
    sequence_example_fields(DISCRIMINATIVE_OUTPUT_RECORD),
    ("discriminative.example", "NnetDiscriminativeExample"),
)
"""An example of discriminative training."""
