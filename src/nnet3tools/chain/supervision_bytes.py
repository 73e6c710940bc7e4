"""Supervisions as bytes, taken apart only as far as they are cut. Without NumPy.

Plain supervision of one sequence in the form that Kaldi writes in binary is walked over, with the
checks of `Supervision.read`. Any other is read in full.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from nnet3tools.fst.acceptor_walk import walk_acceptor
from nnet3tools.io.byte_walk import ByteWalk, OtherFormError
from nnet3tools.io.holder import Holder
from nnet3tools.io.stream import Reader, Writer
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


class SupervisionBytes(NamedTuple):
    """The bytes of a `<Supervision>` in binary, and what stands before its acceptor."""

    data: bytes
    weight: bytes
    """A float32."""
    frames_per_sequence: int
    label_dim: int
    begin: int
    """Where the acceptor begins."""

    @property
    def acceptor(self) -> bytes:
        """The compact acceptor."""
        return self.data[self.begin : -len(_END)]

    def supervision(self) -> Supervision:
        """The supervision, read in full."""
        return _read_whole(Reader(io.BytesIO(self.data), binary=True))


def _read_whole(reader: Reader) -> Supervision:
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
    return _read_whole(reader) if data is None else found[-1]


def _write(writer: Writer, value: SupervisionBytes | Supervision) -> None:
    whole = value.supervision() if isinstance(value, SupervisionBytes) else value
    whole.write(writer)


SUPERVISION_BYTES: Holder[SupervisionBytes | Supervision] = Holder(
    "a supervision", _read, _write, entries=_entries
)
"""The holder of tables of supervisions that are only cut."""
