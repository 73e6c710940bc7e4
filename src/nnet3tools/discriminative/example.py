"""Examples of discriminative training (Kaldi's nnet-discriminative-example.h)."""

from __future__ import annotations

import numpy as np

from nnet3tools.chain.example_format import sequence_example_fields
from nnet3tools.chain.sequences import SequenceExample, SequenceOutput
from nnet3tools.discriminative.supervision import (
    DISCRIMINATIVE_SUPERVISION_RECORD,
    DiscriminativeSupervision,
)
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.general_matrix import check_finite
from nnet3tools.io.holders import Holder
from nnet3tools.io.record import CHAR_VECTOR, INDEXES, WORD, Field, Record
from nnet3tools.io.stream import Reader
from nnet3tools.training.example import NnetExample, NnetIo

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


@dataclass(frozen=True)
class NnetDiscriminativeSupervision(SequenceOutput[DiscriminativeSupervision]):
    """The discriminative supervision of one output, with a weight from 0 to 1 for each frame."""

    RECORD = DISCRIMINATIVE_OUTPUT_RECORD

    def check(self) -> None:
        """Raise DataError if sizes and indexes disagree, or a frame weight is not in 0 to 1."""
        super().check()
        if not ((self.deriv_weights >= 0.0) & (self.deriv_weights <= 1.0)).all():
            raise DataError(
                f"'{self.name}' of an example has a derivative weight that is not from 0 to 1"
            )

    def check_finite(self) -> None:
        """Raise NotFiniteError if the supervision's weight is NaN or infinite."""
        check_finite(f"weight of '{self.name}'", np.array([self.supervision.weight], np.float32))


@dataclass
class NnetDiscriminativeExample(SequenceExample[NnetDiscriminativeSupervision]):
    """The inputs and discriminative supervisions of a chunk, or of a minibatch."""

    RECORD = DISCRIMINATIVE_EXAMPLE_RECORD


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


DISCRIMINATIVE_MINIBATCH: Holder[NnetExample] = Holder("a discriminative example", _read_minibatch)
"""The holder for reading examples as NnetExamples, for trainers and diagnostics."""

DISCRIMINATIVE_FRAMES: Holder[NnetExample] = Holder("a discriminative example", _read_frames)
"""The holder for reading examples without supervision: outputs have only their indexes."""
