"""Chain examples as bytes, taken apart only as far as they are changed. Without NumPy.

An example in the form that Kaldi writes in binary has a head, which is inputs, indexes and the
facts of the supervision, the acceptor, and a tail with the derivative weights. Most examples of an
archive share the layout of their heads. Any other example is read in full.
"""

from __future__ import annotations

import math
import re
import struct
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from nnet3tools.fst.acceptor_walk import walk_acceptor
from nnet3tools.io.byte_walk import ByteWalk, OtherFormError
from nnet3tools.io.held_bytes import HeldBytes
from nnet3tools.io.holder import Holder
from nnet3tools.io.stream import Reader
from nnet3tools.training.example_layout import AT_HAND, KEY, KnownLayouts, Layout, walk_io

if TYPE_CHECKING:
    from nnet3tools.chain.example import NnetChainExample

__all__ = ["CHAIN_BYTES", "ChainExampleBytes", "facts_of", "head_of"]

_MOST_NUM_IO = 1000
_FACTS = re.compile(
    rb"<NumSequences> \x04\x01\0\0\0<FramesPerSeq> \x04(.{4})<LabelDim> \x04(.{4})<End2End> (T|F)",
    re.DOTALL,
)
_END = b"</NnetChainSup> </Nnet3ChainEg> "


class ChainExampleBytes(HeldBytes["NnetChainExample"]):
    """The bytes of a `<Nnet3ChainEg>`.

    `head` is the layout of what is before the acceptor; its last hole is the supervision's weight.
    `acceptor` and `tail` are where the acceptor and what comes after it begin.
    """

    __slots__ = ("acceptor", "head", "tail")

    def __init__(self, data: bytes, head: Layout, acceptor: int, tail: int) -> None:
        self.data, self.head, self.acceptor, self.tail = data, head, acceptor, tail

    @staticmethod
    def read_whole(reader: Reader) -> NnetChainExample:
        """As NnetChainExample.read."""
        # Here, as it loads NumPy.
        from nnet3tools.chain.example import NnetChainExample

        return NnetChainExample.read(reader)


def _walk_head(walk: ByteWalk) -> None:
    """Go over all before the acceptor of an example with one output of one sequence."""
    walk.word(b"<Nnet3ChainEg> <NumInputs> \4")
    if not 0 < (num_inputs := walk.integer()) <= _MOST_NUM_IO:
        raise OtherFormError
    for _ in range(num_inputs):
        walk_io(walk)
    walk.word(b"<NumOutputs> \4\1\0\0\0<NnetChainSup> ")
    walk.name()
    start = walk.at
    num_rows = walk.index_vector().num_rows
    steps = bytes(walk.data[walk.at - num_rows : walk.at])
    if walk.at - start != num_rows + len(b"<I1V> \4....") or num_rows < 2:
        raise OtherFormError
    if steps.count(steps[-1]) - (steps[0] == steps[-1]) != num_rows - 1 or not steps[-1] < 125:
        raise OtherFormError
    walk.word(b"<Supervision> <Weight> \4")
    walk.skip(4)
    walk.add_hole(walk.at - 4)
    walk.word(b"<NumSequences> \4\1\0\0\0<FramesPerSeq> \4")
    if walk.integer() != num_rows:
        raise OtherFormError
    walk.word(b"<LabelDim> \4")
    if walk.integer() <= 0:
        raise OtherFormError
    walk.word(b"<End2End> ")
    if walk.data[walk.at : walk.at + 1] == b"T":
        walk.word(b"T<Fsts> ")
    else:
        walk.word(b"F")


_heads = KnownLayouts(_walk_head)
_facts: dict[Layout, tuple[int, int, bool]] = {}
_MOST_FACTS = 1000


def facts_of(head: Layout) -> tuple[int, int, bool]:
    """Frames, largest label, and whether supervision is end-to-end."""
    if (found := _facts.get(head)) is None:
        match = _FACTS.search(head.fixed[-1])
        assert match is not None
        if len(_facts) >= _MOST_FACTS:
            _facts.clear()
        frames, label_dim = struct.unpack("<ii", match.group(1) + match.group(2))
        found = _facts[head] = frames, label_dim, match.group(3) == b"T"
    return found


def head_of(data: bytes) -> Layout | None:
    """The layout of what is before the acceptor; None if it is none of the forms walked over."""
    found = _heads.find(data, 0)
    return None if found is None else found[1]


def _walked(data: bytes | bytearray, start: int) -> tuple[Layout, int, int, int] | None:
    """Layout of the head, and the ends of head, acceptor, and all; IndexError as ByteWalk."""
    if (found := _heads.find(data, start)) is None:
        return None
    end_of_head, head = found
    frames, label_dim, is_e2e = facts_of(head)
    walk = ByteWalk(data, end_of_head)
    try:
        walk_acceptor(walk, label_dim)
        tail = walk.at
        _walk_tail(walk, frames, is_e2e)
    except OtherFormError:
        return None
    return head, end_of_head, tail, walk.at


def _walk_tail(walk: ByteWalk, frames: int, is_e2e: bool) -> None:
    walk.word(b"</Fsts> </Supervision> <DW2> FV \4" if is_e2e else b"</Supervision> <DW2> FV \4")
    if (size := walk.integer()) not in (0, frames):
        raise OtherFormError
    begin = walk.at
    walk.skip(4 * size)
    weights = array("f", bytes(walk.data[begin : walk.at]))
    if size and (min(weights) < 0.0 or not math.isfinite(sum(weights))):
        raise OtherFormError
    walk.word(_END)


def _read(reader: Reader) -> ChainExampleBytes | NnetChainExample:
    found: list[tuple[Layout, int, int]] = []

    def end_of(data: bytearray, start: int) -> int | None:
        if (walked := _walked(data, start)) is None:
            return None
        head, acceptor, tail, end = walked
        found.append((head, acceptor - start, tail - start))
        return end

    data = reader.take(end_of) if reader.binary else None
    whole = ChainExampleBytes.read_whole
    return whole(reader) if data is None else ChainExampleBytes(data, *found[-1])


def _entries(reader: Reader) -> Iterator[tuple[str, ChainExampleBytes | NnetChainExample]]:
    data = reader.buffered(AT_HAND)
    start = 0
    while (key := KEY.match(data, start)) is not None:
        begin = key.end()
        try:
            walked = _walked(data, begin)
        except IndexError:
            return
        if walked is None:
            return
        head, acceptor, tail, end = walked
        reader.advance(end - start)
        start = end
        example = ChainExampleBytes(data[begin:end], head, acceptor - begin, tail - begin)
        yield key.group(1).decode(), example


def _adopt(value: object) -> ChainExampleBytes | NnetChainExample | None:
    """Chain examples of any form."""
    is_example = isinstance(value, ChainExampleBytes) or hasattr(value, "outputs")
    return cast("ChainExampleBytes | NnetChainExample", value) if is_example else None


CHAIN_BYTES: Holder[ChainExampleBytes | NnetChainExample] = Holder(
    "a chain example",
    _read,
    lambda writer, example: example.write(writer),
    entries=_entries,
    adopt=_adopt,
)
"""The holder of tables of chain examples of which as little as possible is looked at."""
