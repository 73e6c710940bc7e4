"""Descriptions of Kaldi's records, `<Name> field ... </Name>`.

A description lists the fields of a record in the order of the file. The full reader and the full
writer, in text and in binary, follow from it. So does the walk over bytes (`byte_walk.py`), which
finds where a binary record ends without reading its values. This module does not load NumPy.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Self

from nnet3tools.errors import DataError, quoted
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.byte_walk import ByteWalk
from nnet3tools.io.stream import Reader, Writer

Values = Mapping[str, Any]
"""The values of the fields before the present one, by name."""

_MAX_COUNT = 1_000_000


class ValueKind(NamedTuple):
    """How values of one kind are read from files, written to files and passed over in bytes.

    `walk(walk, values)` moves a ByteWalk past a value and returns the value; `values` are those of
    the record's earlier fields. Without `walk`, records with such a field are always read in full.
    """

    read: Callable[[Reader], Any]
    write: Callable[[Writer, Any], object]
    walk: Callable[[ByteWalk, Values], Any] | None = None


def imported_later(module: str, name: str) -> Callable[..., Any]:
    """A function that calls `name` of `nnet3tools.<module>`, imported at the first call."""

    @functools.cache
    def function() -> Callable[..., Any]:
        return getattr(importlib.import_module(f"nnet3tools.{module}"), name)

    return lambda *arguments: function()(*arguments)


def _walk_matrix(walk: ByteWalk, values: Values) -> None:
    walk.matrix(values["indexes"].num_rows)


WORD = ValueKind(Reader.read_token, Writer.write_token, lambda walk, _: walk.name())
INT32 = ValueKind(Reader.read_int32, Writer.write_int32, lambda walk, _: walk.int32())
FLAG = ValueKind(Reader.read_bool, Writer.write_bool, lambda walk, _: walk.flag())
FLOAT32 = ValueKind(Reader.read_float, Writer.write_float, lambda walk, _: walk.float32())
INT32_VECTOR = ValueKind(Reader.read_int32_vector, Writer.write_int32_vector)
FLOAT_VECTOR = ValueKind(
    Reader.read_vector, Writer.write_vector, lambda walk, _: walk.float_vector()
)
CHAR_VECTOR = ValueKind(
    imported_later("io.char_vector", "read_vector_as_char"),
    imported_later("io.char_vector", "write_vector_as_char"),
)
INDEXES = ValueKind(
    imported_later("io.index_vector", "read_index_vector"),
    imported_later("io.index_vector", "write_index_vector"),
    lambda walk, _: walk.index_vector(),
)
MATRIX = ValueKind(
    imported_later("io.general_matrix", "read_general_matrix"),
    imported_later("io.general_matrix", "write_general_matrix"),
    _walk_matrix,
)
"""A full, compressed or sparse matrix with a row for each of the `indexes` before it."""


# The methods that are left out of these classes would take 2 ms of every start.
@dataclass(eq=False, repr=False)
class Field:
    """The description of a record's field: the attribute `name`, stored after `token` if not "".

    `usual(value, values)` says whether a fast walk over bytes may accept a record with this value:
    True for single examples that Kaldi's programs write. `problem(values)` returns an error text
    about the fields up to this one, or "" if they are valid. A field with a `default` may be
    absent; a `rare` one is absent in most files and is written only if it has elements. `older` has
    tokens and kinds of earlier versions of the format. `ends_layout`: a Layout (encoded.py)
    describes only the fields before this one, whose size varies.
    """

    name: str
    kind: ValueKind | Record
    token: str = ""
    usual: Callable[[Any, Values], bool] = lambda value, values: True
    problem: Callable[[Values], str] = lambda values: ""
    default: Callable[[], Any] | None = None
    rare: bool = False
    older: tuple[tuple[str, ValueKind], ...] = ()
    ends_layout: bool = False

    def read(self, reader: Reader, values: Values, end: str) -> Any:
        """Read token and value; `values` are the earlier fields', `end` the record's last token."""
        if (kind := self._kind_here(reader, end)) is None:
            assert self.default is not None
            return self.default()
        return kind.read(reader)

    def _kind_here(self, reader: Reader, end: str) -> ValueKind | Record | None:
        """Consume the field's token, and return the kind of its value; None if the field is absent.

        `end` is the record's last token.
        """
        if self.default is None:
            if self.token:
                reader.expect_token(self.token)
            return self.kind
        token = reader.peek_token()
        for known, kind in ((self.token, self.kind), *self.older):
            if token == known:
                reader.expect_token(token)
                return kind
        if token != end and not self.rare:
            reader.read_token()
            raise reader.error(f"expected {self.token} or {end}, found {quoted(token)}")
        return None

    def write(self, writer: Writer, value: Any) -> None:
        """Write the field's token and value."""
        if self.rare and (value is None or not len(value)):
            return
        if self.token:
            writer.write_token(self.token)
        self.kind.write(writer, value)

    def steps(self, values: Values) -> Iterator[bytes | Field]:
        """Yield parts of a binary file: bytes, and a Field that the caller reads into `values`."""
        if self.rare:
            return
        if self.token:
            yield self.token.encode() + b" "
        if isinstance(self.kind, Record):
            yield from self.kind.steps(values)
        else:
            yield self


@dataclass(eq=False, repr=False)
class Repeated(Field):
    """A field with a list of records: token, number, records. `noun` names records in errors.

    With `newlines`, text has a newline after the number and after each record.
    """

    noun: str = ""
    newlines: bool = False

    def read(self, reader: Reader, values: Values, end: str) -> list[Any]:
        """Read the token and the list of records; DataError for a number that is not positive.

        `values` and `end`, as for all fields, are the earlier fields and the record's last token.
        """
        count = reader.expect_token(self.token).read_int32()
        if not 0 < count <= _MAX_COUNT:
            raise reader.error(f"an example cannot have {count} {self.noun}")
        return [self.kind.read(reader) for _ in range(count)]

    def write(self, writer: Writer, value: list[Any]) -> None:
        """Write the token, the number of records and the records."""
        writer.write_token(self.token).write_int32(len(value))
        if self.newlines:
            writer.write_newline()
        for item in value:
            self.kind.write(writer, item)
            if self.newlines:
                writer.write_newline()

    def steps(self, values: Values) -> Iterator[bytes | Field]:
        """As `Record.steps`: yield the token, a Field for the number, and each record's parts."""
        assert isinstance(self.kind, Record)
        yield self.token.encode() + b" "
        yield Field(self.name, INT32, usual=self.usual)
        for _ in range(values[self.name]):
            yield from self.kind.steps(values)


@dataclass(eq=False, repr=False)
class Record:
    """The description of a kind of record: its name in files, its fields and its class.

    `type_path` is the module below nnet3tools and the name of the class, a RecordObject.
    """

    name: str
    fields: tuple[Field, ...]
    type_path: tuple[str, str]

    @functools.cached_property
    def type(self) -> type[RecordObject]:
        """The class of the records; importing it loads NumPy."""
        module, name = self.type_path
        return getattr(importlib.import_module(f"nnet3tools.{module}"), name)

    def read(self, reader: Reader) -> Any:
        """Read a whole record and return its object; DataError unless its fields agree."""
        reader.expect_token(f"<{self.name}>")
        end = f"</{self.name}>"
        values: dict[str, Any] = {}
        for field in self.fields:
            values[field.name] = field.read(reader, values, end)
            if problem := field.problem(values):
                raise reader.error(problem)
        reader.expect_token(end)
        try:
            found = self.type.of_fields(values)
            found.check()
        except DataError as error:
            raise reader.error(str(error)) from None
        return found

    def write(self, writer: Writer, value: Any) -> None:
        """Write the token <name>, the fields of the object `value`, and the token </name>."""
        writer.write_token(f"<{self.name}>")
        for field in self.fields:
            field.write(writer, getattr(value, field.name))
        writer.write_token(f"</{self.name}>")

    def steps(self, values: Values) -> Iterator[bytes | Field]:
        """Yield, in order, what a binary file must have: bytes (tokens), or a Field to be read.

        The caller puts the Field's value into `values`, by its name, before the next item.
        """
        yield f"<{self.name}> ".encode()
        for field in self.fields:
            yield from field.steps(values)
        yield f"</{self.name}> ".encode()


class RecordObject:
    """Base class of objects that are read and written as the class attribute `RECORD` describes."""

    RECORD: ClassVar[Record]

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read an object of the class; DataError unless its fields agree."""
        return cls.RECORD.read(reader)

    def write(self, writer: Writer) -> None:
        """Write the object in binary or text, depending on the writer's mode."""
        self.RECORD.write(writer, self)

    @classmethod
    def of_fields(cls, values: dict[str, Any]) -> Self:
        """Make an object from values of the record's fields by name."""
        return cls(**values)

    def check(self) -> None:
        """Raise DataError if the object's fields do not agree with each other."""
