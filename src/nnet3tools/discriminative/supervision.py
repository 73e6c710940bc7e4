"""Supervision of discriminative training: what was said, and what else might have been.

Files are those of Kaldi's discriminative-supervision.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nnet3tools.chain.sequence_supervision import SequenceSupervision
from nnet3tools.errors import DataError
from nnet3tools.fst.lattice import Lattice
from nnet3tools.fst.lattice_files import read_lattice, write_lattice
from nnet3tools.fst.lattice_order import concatenated, in_top_order, lattice_state_times
from nnet3tools.io.stream import Reader, Writer

__all__ = ["DiscriminativeSupervision", "merge_supervisions"]


_DIGITS = 7
"""Of costs in text, as of all floating-point numbers in a file that says whether it is binary."""


@dataclass(frozen=True)
class DiscriminativeSupervision(SequenceSupervision):
    """The alignment of what was said, and a lattice of that and its rivals.

    `num_ali` are the transition ids of all frames, the numerator; `den_lat`, the denominator, is a
    lattice in topological order, all of whose paths have as many. The sequences follow one another.
    """

    num_ali: NDArray[np.int32]
    den_lat: Lattice

    TOKEN: ClassVar[str] = "DiscriminativeSupervision"

    @classmethod
    def of(
        cls, alignment: NDArray[np.int32], lattice: Lattice, weight: float
    ) -> DiscriminativeSupervision:
        """Of one utterance; DataError if its alignment and lattice do not go together."""
        if not len(alignment):
            raise DataError("the alignment is empty")
        if not lattice.fst.num_states:
            raise DataError("the lattice is empty")
        sorted_lattice = in_top_order(lattice)
        found = cls(weight, 1, len(alignment), np.asarray(alignment, np.int32), sorted_lattice)
        found.check()
        return found

    def check(self) -> None:
        """DataError unless the alignment and all paths of the lattice have `num_frames` ids."""
        if len(self.num_ali) != self.num_frames:
            raise DataError(
                f"the alignment has {len(self.num_ali)} transition ids, expected {self.num_frames}"
            )
        if (length := int(lattice_state_times(self.den_lat).max(initial=0))) != self.num_frames:
            raise DataError(f"the lattice has {length} frames, expected {self.num_frames}")

    @classmethod
    def read(cls, reader: Reader) -> DiscriminativeSupervision:
        """Read Kaldi's `<DiscriminativeSupervision>`; DataError if its parts do not agree."""
        weight, num_sequences, frames_per_sequence = cls.read_head(reader)
        if num_sequences <= 0 or frames_per_sequence <= 0:
            raise reader.error(
                f"expected a supervision, found one of {num_sequences} sequences of "
                f"{frames_per_sequence} frames"
            )
        reader.expect_token("<NumAli>")
        alignment = reader.read_int32_vector()
        reader.expect_token("<DenLat>")
        lattice = read_lattice(reader)
        reader.expect_token(f"</{cls.TOKEN}>")
        try:
            found = cls(
                weight, num_sequences, frames_per_sequence, alignment, in_top_order(lattice)
            )
            found.check()
        except DataError as error:
            raise reader.error(str(error)) from None
        return found

    def write(self, writer: Writer) -> None:
        """Write as Kaldi does."""
        self.write_head(writer)
        writer.write_token("<NumAli>")
        writer.write_int32_vector(self.num_ali)
        writer.write_token("<DenLat>")
        write_lattice(writer, self.den_lat, _DIGITS)
        writer.write_token(f"</{self.TOKEN}>")


def merge_supervisions(parts: Sequence[DiscriminativeSupervision]) -> DiscriminativeSupervision:
    """One supervision of many single sequences; DataError unless of one length and weight."""
    first = parts[0]
    if len(parts) == 1:
        return first
    for part in parts:
        if part.num_sequences != 1:
            raise DataError("merging supervisions of which one is merged already")
        if part.weight != first.weight:
            raise DataError(
                f"merging supervisions of different weights: {first.weight:g} and {part.weight:g}"
            )
        if part.frames_per_sequence != first.frames_per_sequence:
            raise DataError(
                f"merging supervisions of different lengths: {first.frames_per_sequence} and "
                f"{part.frames_per_sequence}"
            )
    return replace(
        first,
        num_sequences=len(parts),
        num_ali=np.concatenate([part.num_ali for part in parts]),
        den_lat=concatenated([part.den_lat for part in parts]),
    )
