"""Supervisions as bytes, taken apart only as far as they are cut. Without NumPy.

Plain supervision of one sequence in the form that Kaldi writes in binary is walked over, with the
checks of `Supervision.read`. Any other is read in full.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nnet3tools.fst.acceptor_walk import walk_acceptor
from nnet3tools.io.byte_walk import ByteWalk, OtherFormError
from nnet3tools.io.held_bytes import HeldBytes
from nnet3tools.io.holder import Holder
from nnet3tools.io.stream import Reader
from nnet3tools.training.example_layout import AT_HAND, KEY

if TYPE_CHECKING:
    from nnet3tools.chain.supervision import Supervision

__all__ = ["SUPERVISION_BYTES", "SupervisionBytes"]

_HEAD = re.compile(
    rb"<Supervision> <Weight> \x04(.{4})<NumSequences> \x04\x01\0\0\0<FramesPerSeq> \x04(.{4})"
    rb"<LabelDim> \x04(.{4})<End2End> F",
    re.DOTALL,
)
_LONGEST_HEAD = 200
_END = b"</Supervision> "


class SupervisionBytes(HeldBytes["Supervision"]):
    """The bytes of a `<Supervision>`, and what stands before its acceptor, which starts at `begin`.

    `weight` are the bytes of a float32.
    """

    __slots__ = ("begin", "frames_per_sequence", "label_dim", "weight")

    def __init__(
        self, data: bytes, weight: bytes, frames_per_sequence: int, label_dim: int, begin: int
    ) -> None:
        self.data, self.weight, self.begin = data, weight, begin
        self.frames_per_sequence, self.label_dim = frames_per_sequence, label_dim

    @property
    def acceptor(self) -> bytes:
        """The compact acceptor."""
        return self.data[self.begin : -len(_END)]

    @staticmethod
    def read_whole(reader: Reader) -> Supervision:
        """As Supervision.read."""
        # Here, as it loads NumPy.
        from nnet3tools.chain.supervision import Supervision

        return Supervision.read(reader)


def _walked(data: bytes | bytearray, start: int) -> SupervisionBytes | None:
    """The supervision that starts here, if it is all there; IndexError as ByteWalk."""
    if (head := _HEAD.match(data, start)) is None:
        ByteWalk(data, start).need(_LONGEST_HEAD)
        return None
    frames, label_dim = struct.unpack("<ii", head.group(2) + head.group(3))
    if frames <= 0 or label_dim <= 0:
        return None
    walk = ByteWalk(data, head.end())
    try:
        walk_acceptor(walk, label_dim)
        walk.word(_END)
    except OtherFormError:
        return None
    whole = bytes(data[start : walk.at])
    return SupervisionBytes(whole, head.group(1), frames, label_dim, head.end() - start)


def _entries(reader: Reader) -> Iterator[tuple[str, SupervisionBytes]]:
    data = reader.buffered(AT_HAND)
    start = 0
    while (key := KEY.match(data, start)) is not None:
        try:
            found = _walked(data, key.end())
        except IndexError:
            return
        if found is None:
            return
        end = key.end() + len(found.data)
        reader.advance(end - start)
        start = end
        yield key.group(1).decode(), found


def _read(reader: Reader) -> SupervisionBytes | Supervision:
    found: list[SupervisionBytes] = []

    def end_of(data: bytearray, start: int) -> int | None:
        if (walked := _walked(data, start)) is None:
            return None
        found.append(walked)
        return start + len(walked.data)

    data = reader.take(end_of) if reader.binary else None
    return SupervisionBytes.read_whole(reader) if data is None else found[-1]


SUPERVISION_BYTES: Holder[SupervisionBytes | Supervision] = Holder(
    "a supervision", _read, lambda writer, value: value.write(writer), entries=_entries
)
"""The holder of tables of supervisions that are only cut."""
