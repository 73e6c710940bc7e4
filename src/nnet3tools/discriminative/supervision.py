"""Supervision of discriminative training: an alignment, and a lattice of competing paths.

Files are those of Kaldi's discriminative-supervision.cc.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnet3tools.chain.example_format import sequence_supervision_fields
from nnet3tools.chain.sequences import SequenceSupervision
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.fst.lattice import Lattice
from nnet3tools.fst.lattice_files import read_lattice, write_lattice
from nnet3tools.fst.lattice_order import in_top_order, lattice_state_times
from nnet3tools.io.record import INT32_VECTOR, Field, Record, ValueKind, Values

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


@dataclass(frozen=True)
class DiscriminativeSupervision(SequenceSupervision):
    """The alignment of the transcript (numerator) and a lattice of all hypotheses (denominator).

    `num_ali` has the transition id of each frame. `den_lat` is in topological order, and all its
    paths have one id per frame. The sequences follow one another.
    """

    num_ali: NDArray[np.int32]
    den_lat: Lattice

    RECORD = DISCRIMINATIVE_SUPERVISION_RECORD

    @classmethod
    def of(
        cls, alignment: NDArray[np.int32], lattice: Lattice, weight: float
    ) -> DiscriminativeSupervision:
        """The supervision of one utterance; DataError if alignment and lattice do not match."""
        if not len(alignment):
            raise DataError("the alignment is empty")
        if not lattice.fst.num_states:
            raise DataError("the lattice is empty")
        sorted_lattice = in_top_order(lattice)
        found = cls(weight, 1, len(alignment), np.asarray(alignment, np.int32), sorted_lattice)
        found.check()
        return found

    def check(self) -> None:
        """Raise DataError unless alignment and all lattice paths have `num_frames` ids."""
        if len(self.num_ali) != self.num_frames:
            raise DataError(
                f"the alignment has {len(self.num_ali)} transition ids, expected {self.num_frames}"
            )
        if (length := int(lattice_state_times(self.den_lat).max(initial=0))) != self.num_frames:
            raise DataError(f"the lattice has {length} frames, expected {self.num_frames}")

    @classmethod
    def of_fields(cls, values: dict[str, Any]) -> DiscriminativeSupervision:
        """A supervision from the values of the fields in a file's record; the lattice is sorted."""
        return cls(**{**values, "den_lat": in_top_order(values["den_lat"])})
