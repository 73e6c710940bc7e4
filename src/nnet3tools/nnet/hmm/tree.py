"""Phonetic decision trees: map phones in context and a pdf class to a pdf (tree/event-map.h)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np

from nnet3tools.errors import DataError, quoted
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.stored import StoredObject

PDF_CLASS_KEY = -1

# A level takes two of the 1,000 frames of Python's stack; Kaldi's trees have about 30 levels.
MAX_DEPTH = 250

Event = dict[int, int]


class EventMap:
    """A decision tree that maps an event to pdfs.

    An event is a dictionary: the phone at each position (from 0) of the context window, and the pdf
    class under the key -1.
    """

    def answers(self, event: Event) -> set[int]:
        """All pdfs that the event may lead to: of every branch where the event lacks a key."""
        raise NotImplementedError

    def largest(self) -> int:
        """The largest pdf in the map; -1 if it has none."""
        raise NotImplementedError

    def write(self, writer: Writer) -> None:
        """Write the map in Kaldi's format."""
        raise NotImplementedError


@dataclass(frozen=True)
class ConstantMap(EventMap):
    """A leaf of a decision tree: it maps every event to one pdf."""

    pdf: int

    def answers(self, event: Event) -> set[int]:
        return {self.pdf}

    def largest(self) -> int:
        return self.pdf

    def write(self, writer: Writer) -> None:
        writer.write_token("CE").write_int32(self.pdf)


@dataclass(frozen=True)
class TableMap(EventMap):
    """A tree node with a subtree for each value of a key, from 0; None for values without a pdf."""

    key: int
    children: tuple[EventMap | None, ...]

    @classmethod
    def of(cls, key: int, maps: Mapping[int, EventMap]) -> TableMap:
        """Make a TableMap for `key` from a dictionary of value -> subtree."""
        return cls(key, tuple(maps.get(value) for value in range(max(maps) + 1)))

    def answers(self, event: Event) -> set[int]:
        if (value := event.get(self.key)) is None:
            chosen = self.children
        else:
            chosen = self.children[value : value + 1] if value >= 0 else ()
        return set().union(*(child.answers(event) for child in chosen if child is not None))

    def largest(self) -> int:
        return max((child.largest() for child in self.children if child is not None), default=-1)

    def write(self, writer: Writer) -> None:
        writer.write_token("TE").write_int32(self.key)
        if writer.binary:
            writer.write_bytes(struct.pack("<bI", -4, len(self.children)))
        else:
            writer.write_int32(len(self.children))
        writer.write_token("(")
        for child in self.children:
            if child is None:
                writer.write_token("NULL")
            else:
                child.write(writer)
        writer.write_token(")").write_newline()


@dataclass(frozen=True)
class SplitMap(EventMap):
    """A tree node with a yes and a no branch: whether a key's value is in `values`."""

    key: int
    values: frozenset[int]
    yes: EventMap
    no: EventMap

    def answers(self, event: Event) -> set[int]:
        if (value := event.get(self.key)) is None:
            return self.yes.answers(event) | self.no.answers(event)
        return (self.yes if value in self.values else self.no).answers(event)

    def largest(self) -> int:
        return max(self.yes.largest(), self.no.largest())

    def write(self, writer: Writer) -> None:
        writer.write_token("SE").write_int32(self.key)
        writer.write_int32_vector(sorted(self.values))
        writer.write_token("{")
        self.yes.write(writer)
        self.no.write(writer)
        writer.write_token("}").write_newline()


def _read_event_map(reader: Reader, depth: int = 0) -> EventMap | None:
    if depth > MAX_DEPTH:
        raise reader.error(f"the decision tree is nested more than {MAX_DEPTH} levels deep")
    token = reader.read_token()
    if token == "NULL":
        return None
    if token == "CE":
        return ConstantMap(reader.read_int32())
    if token == "TE":
        key, size = reader.read_int32(), _read_uint32(reader)
        reader.expect_token("(")
        children = tuple(_read_event_map(reader, depth + 1) for _ in range(size))
        reader.expect_token(")")
        return TableMap(key, children)
    if token == "SE":
        key = reader.read_int32()
        values = frozenset(int(value) for value in reader.read_int32_vector())
        reader.expect_token("{")
        yes, no = _read_event_map(reader, depth + 1), _read_event_map(reader, depth + 1)
        reader.expect_token("}")
        if yes is not None and no is not None:
            return SplitMap(key, values, yes, no)
    raise reader.error(f"expected a decision tree (CE, TE, SE or NULL), found {quoted(token)}")


def _read_uint32(reader: Reader) -> int:
    """Read a uint32, which binary files mark with size byte -4."""
    if not reader.binary:
        return reader.read_int32()
    if reader.peek_byte() != 256 - 4:
        raise reader.error("expected a uint32 in the decision tree")
    reader.skip_byte()
    return int(reader.read_array(1, "<u4", "a uint32")[0])


@dataclass(frozen=True)
class ContextDependency(StoredObject):
    """Kaldi's tree over windows of `width` phones; `central` is the central phone's position."""

    width: int
    central: int
    to_pdf: EventMap

    @classmethod
    def read(cls, reader: Reader) -> ContextDependency:
        """Read a tree file in text or binary; DataError for other data."""
        reader.expect_token("ContextDependency")
        width, central = reader.read_int32(), reader.read_int32()
        if reader.peek_token() == "ToLength":  # only in old files
            reader.expect_token("ToLength")
            _read_event_map(reader)
        reader.expect_token("ToPdf")
        to_pdf = _read_event_map(reader)
        reader.expect_token("EndContextDependency")
        if to_pdf is None or not 0 <= central < width:
            raise reader.error("the decision tree is empty or has no central phone")
        return cls(width, central, to_pdf)

    def write(self, writer: Writer) -> None:
        """Write the tree in Kaldi's format."""
        writer.write_token("ContextDependency").write_int32(self.width)
        writer.write_int32(self.central)
        writer.write_token("ToPdf")
        self.to_pdf.write(writer)
        writer.write_token("EndContextDependency")

    @property
    def num_pdfs(self) -> int:
        """Number of pdfs at the leaves of the tree."""
        return self.to_pdf.largest() + 1

    def pdf_of(self, window: Sequence[int], pdf_class: int) -> int:
        """The pdf for a pdf class and a window of all phones; DataError if the tree has none."""
        pdfs = self.to_pdf.answers({**dict(enumerate(window)), PDF_CLASS_KEY: pdf_class})
        if len(pdfs) != 1:
            raise DataError(
                f"the tree has no pdf for class {pdf_class} of the phones "
                f"{' '.join(map(str, window))}: it does not belong to the topology"
            )
        (pdf,) = pdfs
        return pdf

    def pdf_pairs(
        self, phones: np.ndarray, phone: int, forward_class: int, self_loop_class: int
    ) -> set[tuple[int, int]]:
        """(forward, self-loop) pdfs for two pdf classes over all contexts of a phone.

        `phones` are all phones. A negative self-loop class means no self-loop, with pdf -1.
        """
        window = {self.central: phone}
        if forward_class == self_loop_class:
            pdfs = self.to_pdf.answers({**window, PDF_CLASS_KEY: forward_class})
            return {(pdf, pdf) for pdf in pdfs}
        return self._pairs(phones, window, forward_class, self_loop_class)

    def _pairs(
        self, phones: np.ndarray, window: Event, forward_class: int, self_loop_class: int
    ) -> set[tuple[int, int]]:
        """(forward, self-loop) pdfs for two pdf classes in all completions of a context.

        `window` (position -> phone) is the part of the context given so far, `phones` all phones.
        """
        forward = self.to_pdf.answers({**window, PDF_CLASS_KEY: forward_class})
        if self_loop_class < 0:
            return {(pdf, -1) for pdf in forward}
        self_loop = self.to_pdf.answers({**window, PDF_CLASS_KEY: self_loop_class})
        if len(forward) <= 1 or len(self_loop) <= 1:
            return {(f, s) for f in forward for s in self_loop}
        open_positions = [i for i in range(self.width) if i not in window]
        position = min(open_positions, key=lambda i: (abs(i - self.central), i))
        return set().union(  # phone 0 stands for the edge of an utterance
            *(
                self._pairs(phones, {**window, position: int(p)}, forward_class, self_loop_class)
                for p in [0, *phones]
            )
        )
