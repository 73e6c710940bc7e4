"""The part that supervisions of chain and of discriminative training share."""

from __future__ import annotations

from dataclasses import dataclass

from nnet3tools.io.record import RecordObject


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
