"""Layouts of examples: what the bytes of like examples have in common.

Most examples of an archive differ only in the elements of their matrices: all other bytes are the
same ones. A layout is a regular expression for such examples, made of one that was walked over;
what it matches is known to be sound, and where its matrices are. Without NumPy.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from nnet3tools.io.byte_walk import ByteWalk, OtherFormError
from nnet3tools.io.matrix_forms import AnyBytes, MatrixForm
from nnet3tools.io.stream import Reader

__all__ = ["AT_HAND", "KEY", "KnownLayouts", "Layout", "walk_example"]

_MOST_NUM_IO = 1000


def walk_example(walk: ByteWalk) -> None:
    """Go to the end of the `<Nnet3Eg>` that starts here."""
    walk.word(b"<Nnet3Eg> <NumIo> \x04")
    if not 0 < (num_io := walk.integer()) <= _MOST_NUM_IO:
        raise OtherFormError
    for _ in range(num_io):
        walk_io(walk)
    walk.word(b"</Nnet3Eg> ")


def walk_io(walk: ByteWalk) -> None:
    """Go over an `<NnetIo>`."""
    walk.word(b"<NnetIo> ")
    walk.name()
    walk.matrix(walk.index_vector().num_rows)
    walk.word(b"</NnetIo> ")


@dataclass(frozen=True)
class Layout:
    """Examples that have the bytes `fixed` before, between and after matrices of these forms."""

    fixed: tuple[bytes, ...]
    forms: tuple[MatrixForm | AnyBytes, ...]

    @classmethod
    def of(cls, walk: ByteWalk, start: int) -> Layout:
        """The layout of the example that was walked over from `start` on."""
        begins = [begin for begin, _, _ in walk.holes] + [walk.at]
        ends = [start] + [end for _, end, _ in walk.holes]
        fixed = [bytes(walk.data[a:b]) for a, b in zip(ends, begins, strict=True)]
        return cls(tuple(fixed), tuple(form for _, _, form in walk.holes))

    def __hash__(self) -> int:
        """Computed once, as layouts are what examples are grouped by."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.fixed, self.forms))

    @cached_property
    def pattern(self) -> re.Pattern[bytes]:
        """Matches an example; its groups are those of the patterns of the matrices, in order."""
        pieces = [re.escape(self.fixed[0])]
        for form, fixed in zip(self.forms, self.fixed[1:], strict=True):
            pieces += [form.pattern, re.escape(fixed)]
        return re.compile(b"".join(pieces), re.DOTALL)

    @cached_property
    def longest(self) -> int:
        """Bytes of an example; of sparse matrices with as many elements as may be."""
        return sum(map(len, self.fixed)) + sum(form.longest for form in self.forms)

    @cached_property
    def entry(self) -> re.Pattern[bytes]:
        """Matches a usual entry of an archive, key and example as groups; else nothing, at once."""
        return re.compile(KEY.pattern + b"(" + self.pattern.pattern + b")|", re.DOTALL)

    @property
    def size_of_pattern(self) -> int:
        """What the time to make the pattern goes by."""
        return sum(map(len, self.fixed)) + sum(form.most for form in self.forms) ** 2


_SIGHTINGS = 8
"""Examples of a layout after which its pattern is made, which takes as long as reading about 10."""
_LARGEST_PATTERN = 4000
_MAX_LAYOUTS = 32
_MAX_COUNTED = 1000
AT_HAND = 1 << 20
KEY = re.compile(rb"([!-~]+)[ \t]\0B")
"""The usual key of an archive, and the header of what follows in binary."""


class KnownLayouts:
    """The layouts of the examples met so far, to find more examples of them quickly.

    `walk` goes over an example of the kind in question, as `walk_example` does.
    """

    def __init__(self, walk: Callable[[ByteWalk], None]) -> None:
        self._walk = walk
        self._counts: dict[Layout, int] = {}
        self._known: list[Layout] = []  # the one matched last is first
        self.latest: Layout | None = None
        """The layout of what `end_of` found last; None if it has no pattern."""

    def end_of(self, data: bytes | bytearray, start: int) -> int | None:
        """Where the example that starts here ends; IndexError if that may be beyond the data.

        None if it is none of the forms walked over.
        """
        found = self.find(data, start)
        return None if found is None else found[0]

    def find(self, data: bytes | bytearray, start: int) -> tuple[int, Layout] | None:
        """The same, and the layout, which has no pattern if it is not `latest`."""
        if (end := self._match(data, start)) is not None:
            assert self.latest is not None
            return end, self.latest
        walk = ByteWalk(data, start)
        try:
            self._walk(walk)
        except OtherFormError:
            return None
        layout = Layout.of(walk, start)
        self.latest = self._count(layout)
        return walk.at, layout

    def entries(self, reader: Reader) -> Iterator[tuple[str, bytes, Layout]]:
        """Take the entries of an archive that are at hand and known: key, example and layout."""
        if not self._known:
            return
        data = reader.buffered(AT_HAND)
        start = 0
        while (key := KEY.match(data, start)) is not None:
            if (end := self._match(data, key.end())) is None:
                break
            reader.advance(end - start)
            start = end
            assert self.latest is not None
            yield key.group(1).decode(), data[key.end() : end], self.latest

    def runs(self, reader: Reader) -> Iterator[tuple[str, Layout, bytes, list[tuple[int, int]]]]:
        """Take the same, those of one layout that follow one another together.

        Gives the last key, the layout, the bytes from the first example's to the last one's, and
        where each begins and ends.
        """
        if not self._known:
            return
        data = reader.buffered(AT_HAND)
        start = 0
        while matches := self._run(data, start):
            last = matches[-1]
            reader.advance(last.end() - start)
            start = last.end()
            assert self.latest is not None
            first = matches[0].start(2)
            spans = [match.span(2) for match in matches]
            places = [(a - first, b - first) for a, b in spans]
            yield last.group(1).decode(), self.latest, data[first:start], places

    def _run(self, data: bytes, start: int) -> list[re.Match[bytes]]:
        """The entries of one layout from here on."""
        for i, layout in enumerate(self._known):
            found = layout.entry.finditer(data, start)
            if matches := list(itertools.takewhile(operator.attrgetter("lastindex"), found)):
                self._use(i)
                return matches
        return []

    def _use(self, place: int) -> None:
        """Make a known layout the latest."""
        if place:
            self._known.insert(0, self._known.pop(place))
        self.latest = self._known[0]

    def _match(self, data: bytes | bytearray, start: int) -> int | None:
        for i, layout in enumerate(self._known):
            if (match := layout.pattern.match(data, start)) is not None:
                self._use(i)
                return match.end()
        return None

    def _count(self, layout: Layout) -> Layout | None:
        """Count a sighting; the layout itself once there are enough of them."""
        count = self._counts.pop(layout, 0) + 1
        if count < _SIGHTINGS:
            if len(self._counts) >= _MAX_COUNTED:
                self._counts.clear()
            self._counts[layout] = count
            return None
        if layout.size_of_pattern > _LARGEST_PATTERN:
            return None
        self._known.insert(0, layout)
        del self._known[_MAX_LAYOUTS:]
        return layout
