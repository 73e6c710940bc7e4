"""What supervisions of chain and of discriminative training begin with, also in files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nnet3tools.io.stream import Reader, Writer

__all__ = ["SequenceSupervision"]


@dataclass(frozen=True)
class SequenceSupervision:
    """`num_sequences` sequences of `frames_per_sequence` frames each, and what they count."""

    weight: float
    num_sequences: int
    frames_per_sequence: int

    TOKEN: ClassVar[str]
    """Its name in files, as in <Name> and </Name>."""

    @property
    def num_frames(self) -> int:
        """Frames of all sequences together."""
        return self.num_sequences * self.frames_per_sequence

    @classmethod
    def read_head(cls, reader: Reader) -> tuple[float, int, int]:
        """Read the name and these fields, in their order; numbers are as the file has them."""
        reader.expect_token(f"<{cls.TOKEN}>", "<Weight>")
        weight = reader.read_float()
        reader.expect_token("<NumSequences>")
        num_sequences = reader.read_int32()
        reader.expect_token("<FramesPerSeq>")
        return weight, num_sequences, reader.read_int32()

    def write_head(self, writer: Writer) -> None:
        """Write what `read_head` reads."""
        writer.write_token(f"<{self.TOKEN}>")
        writer.write_token("<Weight>")
        writer.write_float(self.weight)
        writer.write_token("<NumSequences>")
        writer.write_int32(self.num_sequences)
        writer.write_token("<FramesPerSeq>")
        writer.write_int32(self.frames_per_sequence)
