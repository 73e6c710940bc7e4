"""Records of a binary archive that pass from table to table as bytes. Without NumPy.

Most records of an archive differ only in the elements of their matrices. A layout is all other
bytes of such records. A regular expression made from the layout finds further records; it matches
exactly the bytes that the full reader accepts. If a record has no known layout, a ByteWalk checks
the record field by field. If the ByteWalk does not accept it, the full reader reads the record.
"""

from __future__ import annotations

import io
import itertools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

from nnet3tools.io.byte_walk import ByteWalk, OtherFormError
from nnet3tools.io.entries import AT_HAND, KEY, encoded_entries
from nnet3tools.io.holder import Holder
from nnet3tools.io.matrix_forms import AnyBytes, MatrixForm
from nnet3tools.io.record import Field, Record, ValueKind
from nnet3tools.io.stream import Reader, Writer

T = TypeVar("T")

_COMMON = 8
"""Records of a layout after which its pattern is made, which takes as long as reading about 10."""
_MOST_COSTLY_PATTERN = 4000
_MAX_COMMON, _MAX_RARE = 32, 200
_WORTH_SCANNING = 1000
"""A scanner is loaded after this number of records. Finding them takes 30 ms, loading it 100 ms."""


class Layout:
    """The bytes that records of equal structure share: all but their matrices and numbers (holes).

    `fixed` are the bytes before, between and after the holes, `forms` the form of each hole's
    bytes. They describe a record up to the first field of varying size (in chain examples the
    acceptor). `rest` are the bytes and fields that follow; `values` are values of earlier fields by
    name, which reading `rest` needs.
    """

    def __init__(
        self,
        record: Record,
        fixed: tuple[bytes, ...],
        forms: tuple[MatrixForm | AnyBytes, ...],
        rest: tuple[bytes | Field, ...],
        values: dict[str, Any],
    ) -> None:
        self.record, self.fixed, self.forms = record, fixed, forms
        self.rest, self.values = rest, values
        self._num_seen = 0
        self.is_common = False
        """Whether there were so many records of the layout that looking for it pays."""
        self._prototype: Any = None

    @cached_property
    def pieces(self) -> tuple[tuple[bytes, int], ...]:
        """Bytes of a record up to `rest`, and the number of arbitrary bytes after them.

        Empty if the record has a sparse matrix, whose size varies.
        """
        if not all(form.pieces for form in self.forms):
            return ()
        parts = [(self.fixed[0], 0)]
        for form, fixed in zip(self.forms, self.fixed[1:], strict=True):
            parts += [*form.pieces, (fixed, 0)]
        return tuple(parts)

    def end(self, data: bytes | bytearray, start: int) -> int | None:
        """The end of a record up to `rest` that begins at `start`; None for other bytes."""
        if not self.pieces:
            match = self.pattern.match(data, start)
            return None if match is None else match.end()
        for text, num_skipped in self.pieces:
            if not data.startswith(text, start):
                return None
            start += len(text) + num_skipped
        return start

    @cached_property
    def pattern(self) -> re.Pattern[bytes]:
        """Regular expression for a record up to `rest`, with a group for each matrix or number."""
        parts = [re.escape(self.fixed[0])]
        for form, fixed in zip(self.forms, self.fixed[1:], strict=True):
            parts += [form.pattern, re.escape(fixed)]
        return re.compile(b"".join(parts), re.DOTALL)

    @cached_property
    def entry(self) -> re.Pattern[bytes]:
        """Regular expression that matches an archive entry, groups (key, record), or no bytes."""
        return re.compile(KEY.pattern + b"(" + self.pattern.pattern + b")|", re.DOTALL)

    def filled(self, columns: Sequence[Iterable[bytes]]) -> Iterator[bytes]:
        """Yield records up to `rest`: `fixed` bytes, with matrix or number i from columns[i]."""
        return filled(map(itertools.repeat, self.fixed), columns)

    def count(self, num_more: int) -> None:
        """Add `num_more` to the records seen; set `is_common` if looking for the layout then pays.

        Records with fields of varying size are compared with `pieces`, all others with `pattern`.
        """
        self._num_seen += num_more
        if not self.is_common and self._num_seen >= _COMMON:
            cost = sum(map(len, self.fixed)) + sum(form.most for form in self.forms) ** 2
            self.is_common = cost <= _MOST_COSTLY_PATTERN or bool(self.rest and self.pieces)

    def prototype(self, data: bytes = b"") -> Any:
        """A decoded record of the layout; the first call decodes `data`, later calls reuse it.

        Its names, indexes and dimensions are those of all records; its elements are not.
        """
        if self._prototype is None:
            self._prototype = self.record.read(Reader(io.BytesIO(data), binary=True))
        return self._prototype


def filled(fixed: Iterable[Iterable[bytes]], columns: Sequence[Iterable[bytes]]) -> Iterator[bytes]:
    """Yield records, each of the next bytes of fixed[0], columns[0], fixed[1], columns[1], ..."""
    first, *others = fixed
    parts = [first]
    for column, following in zip(columns, others, strict=True):
        parts += [column, following]
    return map(b"".join, zip(*parts, strict=False))


class EncodedRecord(Generic[T]):
    """A record as bytes, `data`: a part described by `layout`, then fields of varying size.

    `holes` lists the byte range (begin, end) in `data` of each vector and number in these fields.
    """

    __slots__ = ("data", "holes", "layout")

    def __init__(
        self, data: bytes, layout: Layout, holes: tuple[tuple[int, int], ...] = ()
    ) -> None:
        self.data, self.layout, self.holes = data, layout, holes

    @property
    def RECORD(self) -> Record:
        """The description of the record's fields."""
        return self.layout.record

    @property
    def covered(self) -> bytes:
        """The bytes of the record before the first range in `holes`; all bytes without holes."""
        return self.data[: self.holes[0][0]] if self.holes else self.data

    def prototype(self) -> T:
        """An object with the same names, indexes and dimensions as the record, but other values."""
        return self.layout.prototype(self.data)

    def whole(self) -> T:
        """Read all bytes of the record and return the object."""
        return self.layout.record.read(Reader(io.BytesIO(self.data), binary=True))

    def write(self, writer: Writer) -> None:
        """Write the record in binary or text, depending on the writer's mode."""
        if writer.binary:
            writer.write_bytes(self.data)
        else:
            self.layout.record.write(writer, self.whole())

    def hole(self, place: int) -> bytes:
        """The bytes of value number `place` of those listed in `self.holes`."""
        begin, end = self.holes[place]
        return self.data[begin:end]

    def changed(self, covered: bytes, layout: Layout, *values: bytes) -> EncodedRecord[T]:
        """A copy with other first bytes, `covered` (layout `layout`), and `values` in its `holes`.

        The bytes between the ranges `holes` are copied from this record.
        """
        parts, holes, size = [covered], list[tuple[int, int]](), len(covered)
        at = len(self.covered)
        for (begin, end), value in zip(self.holes, values, strict=True):
            parts += [self.data[at:begin], value]
            first = size + begin - at
            size, at = first + len(value), end
            holes.append((first, size))
        data = b"".join([*parts, self.data[at:]])
        return EncodedRecord(data, layout, tuple(holes))


class LayoutTable:
    """Recognizes encoded records of the kind that `record` describes, by earlier, similar ones.

    `scanner(layouts)` returns None, or an object whose method `find(data)` returns the entries
    (key, record) at the start of `data` that have one of the layouts, and the end of the last one.
    """

    def __init__(self, record: Record, scanner: Callable[..., Any] = lambda layouts: None) -> None:
        self._record, self._scanner, self._num_found = record, scanner, 0
        self._layouts: dict[tuple[Any, Any], Layout] = {}
        self._common: list[Layout] = []  # the one matched last is first

    def find(self, data: bytes | bytearray, start: int) -> tuple[EncodedRecord[Any], int] | None:
        """(record at `start`, its end in `data`); None if the full reader must read the record.

        IndexError if the data ends too early.
        """
        if (matched := self._match(data, start)) is None:
            walk = ByteWalk(data, start)
            try:
                layout = self._walked(walk)
            except OtherFormError:
                return None
            end = walk.at
        else:
            layout, end = matched
        if not layout.rest:
            return EncodedRecord(bytes(data[start:end]), layout), end
        self._num_found += 1
        walk = ByteWalk(data, end)
        try:
            for step in layout.rest:
                if isinstance(step, bytes):
                    walk.word(step)
                else:
                    _go_over(walk, step, layout.values)
        except OtherFormError:
            return None
        holes = tuple([(a - start, b - start) for a, b, _ in walk.holes])
        return EncodedRecord(bytes(data[start : walk.at]), layout, holes), walk.at

    def entries(self, reader: Reader) -> Iterator[tuple[str, EncodedRecord[Any]]]:
        """Consume entries that are complete in the reader's buffer; yield (key, record) of each."""
        if not self._common or self._common[0].rest:
            size = self._num_found > _WORTH_SCANNING
            while size and (scanner := self._scanner(tuple(self._common))):
                entries, size = scanner.find(reader.buffered(AT_HAND))
                reader.advance(size)
                yield from entries
            yield from encoded_entries(reader, self.find)
            return
        for layout, run in self.runs(reader):
            for match in run:
                yield match.group(1).decode(), EncodedRecord(match.group(2), layout)

    def encode(self, value: Any) -> EncodedRecord[Any] | None:
        """Encode an object as an EncodedRecord; None if only the full reader can read its bytes."""
        file = io.BytesIO()
        self._record.write(Writer(file), value)
        found = self.find(file.getvalue(), 0)
        return None if found is None else found[0]

    def changed(
        self, layout: Layout, fixed: tuple[bytes, ...], forms: tuple[MatrixForm | AnyBytes, ...]
    ) -> Layout:
        """`layout` with `fixed` as bytes around its matrices and numbers, and `forms` for these."""
        found = self._get(fixed, forms, layout.rest, layout.values)
        if layout.is_common:
            found.count(_COMMON)
        return found

    def _walked(self, walk: ByteWalk) -> Layout:
        """Move `walk` past a record's fields to the first of varying size; return their Layout."""
        start, values = walk.at, dict[str, Any]()
        steps = self._record.steps(values)
        rest: list[bytes | Field] = []
        for step in steps:
            if isinstance(step, Field) and step.ends_layout:
                rest = _joined([step, *steps])
                break
            if isinstance(step, bytes):
                walk.word(step)
            else:
                values[step.name] = _go_over(walk, step, values)
        begins = [begin for begin, _, _ in walk.holes] + [walk.at]
        ends = [start] + [end for _, end, _ in walk.holes]
        fixed = tuple([bytes(walk.data[a:b]) for a, b in zip(ends, begins, strict=True)])
        layout = self._get(
            fixed, tuple(form for _, _, form in walk.holes if form), tuple(rest), values
        )
        layout.count(1)
        if layout.is_common and layout not in self._common:
            self._common.insert(0, layout)
            del self._common[_MAX_COMMON:]
        return layout

    def _get(
        self,
        fixed: tuple[bytes, ...],
        forms: tuple[MatrixForm | AnyBytes, ...],
        rest: tuple[bytes | Field, ...],
        values: dict[str, Any],
    ) -> Layout:
        if (layout := self._layouts.get((fixed, forms))) is None:
            if len(self._layouts) >= _MAX_RARE:
                self._layouts = {(one.fixed, one.forms): one for one in self._common}
            layout = self._layouts[fixed, forms] = Layout(self._record, fixed, forms, rest, values)
        return layout

    def _match(self, data: bytes | bytearray, start: int) -> tuple[Layout, int] | None:
        for i, layout in enumerate(self._common):
            if (end := layout.end(data, start)) is not None:
                if i:
                    self._use(i)
                return layout, end
        return None

    def _use(self, place: int) -> None:
        """Move layout number `place` of the list `_common` to its front, to be tried first."""
        self._common.insert(0, self._common.pop(place))

    def runs(self, reader: Reader) -> Iterator[tuple[Layout, list[re.Match[bytes]]]]:
        """Consume entries in the reader's buffer; yield successive ones with one layout together.

        Each result is a Layout (the bytes that its records share) and matches of `layout.entry`.
        """
        data = reader.buffered(AT_HAND) if self._common else b""
        start = 0
        while run := self._run(data, start):
            end = run[-1].end()
            reader.advance(end - start)
            start = end
            yield self._common[0], run

    def _run(self, data: bytes, start: int) -> list[re.Match[bytes]]:
        """Matches of successive entries (key, record) by the first Layout that fits; else []."""
        for i, layout in enumerate(self._common):
            found = layout.entry.finditer(data, start)
            if matches := list(itertools.takewhile(operator.attrgetter("lastindex"), found)):
                self._use(i)
                return matches
        return []


def _go_over(walk: ByteWalk, field: Field, values: dict[str, Any]) -> Any:
    """Move `walk` past a field and return its value; `values` are the earlier fields' values.

    OtherFormError if a ByteWalk cannot pass over the field, or `field.usual` rejects the value.
    """
    assert isinstance(field.kind, ValueKind)
    if field.kind.walk is None:
        raise OtherFormError
    value = field.kind.walk(walk, values)
    if not field.usual(value, values):
        raise OtherFormError
    return value


def _joined(steps: list[bytes | Field]) -> list[bytes | Field]:
    """Join successive `bytes` items of `steps`, the parts of a record in the order of the file."""
    found: list[bytes | Field] = []
    for step in steps:
        if isinstance(step, bytes) and found and isinstance(found[-1], bytes):
            found[-1] += step
        else:
            found.append(step)
    return found


def encoded_holder(name: str, layouts: LayoutTable, record: Record) -> Holder[Any]:
    """A Holder that reads EncodedRecords, or objects if `layouts` does not recognize the bytes."""

    def read(reader: Reader) -> Any:
        found = reader.take(layouts.find) if reader.binary else None
        return record.read(reader) if found is None else found

    return Holder(
        name,
        read,
        lambda writer, value: value.write(writer),
        entries=layouts.entries,
        adopt=lambda value: value if getattr(value, "RECORD", None) is record else None,
    )
