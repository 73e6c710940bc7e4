"""Examples that pass from table to table unchanged, as bytes.

What copies, shuffles and chooses examples needs no more of them than where they end. Examples in
the forms that Kaldi writes in binary are walked over, from size to size, with the checks of
`NnetExample.read`; any other is read in full, which also says what is wrong with it.
"""

from __future__ import annotations

import functools
import io
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnet3tools.io.holder import Holder
from nnet3tools.io.stream import Reader, Writer

if TYPE_CHECKING:
    from nnet3tools.training.example import NnetExample

__all__ = ["EXAMPLE_BYTES", "ExampleBytes"]


@dataclass(frozen=True)
class ExampleBytes:
    """The bytes of a `<Nnet3Eg>` in binary, without the header of the table's entry."""

    data: bytes

    def write(self, writer: Writer) -> None:
        """Write in the writer's form."""
        if writer.binary:
            writer.write_bytes(self.data)
        else:
            _read_whole(Reader(io.BytesIO(self.data), binary=True)).write(writer)


def _read_whole(reader: Reader) -> NnetExample:
    # Here, as it loads NumPy.
    from nnet3tools.training.example import NnetExample

    return NnetExample.read(reader)


def _read(reader: Reader) -> ExampleBytes | NnetExample:
    data = reader.take(_end_of_example) if reader.binary else None
    return _read_whole(reader) if data is None else ExampleBytes(data)


EXAMPLE_BYTES: Holder[ExampleBytes | NnetExample] = Holder(
    "an example", _read, lambda writer, example: example.write(writer)
)
"""The holder of tables of examples of which nothing is looked at."""


def _end_of_example(data: bytearray, start: int) -> int | None:
    """Where the example that starts here ends; IndexError if that may be beyond the data.

    None if it is none of the forms walked over.
    """
    walk = _Walk(data, start)
    try:
        walk.example()
    except _OtherFormError:
        return None
    return walk.at


class _OtherFormError(Exception):
    """Something that NnetExample.read shall look at."""


_INT = struct.Struct("<i")
_TWO_INTS = struct.Struct("<ici")
_COMPRESSED = struct.Struct("<8xii")
_COMPRESSED_SIZES = {b"CM ": (8, 1), b"CM2 ": (0, 2), b"CM3 ": (0, 1)}
"""Bytes of the percentiles of a column, and of an element."""
_SPARSE_HEAD, _SPARSE_ELEMENT = "13s", "cic4x"
"""A row's "SV ", dimension and number of elements; an element's column and value."""
_LONGEST_NAME = 1000
_MOST_NUM_IO = 1000
_STEPS = re.compile(rb"[^\x7d-\x83]*")
"""Indexes of which t moved by less than 125 since the one before, and nothing else did."""
_INDEX = rb"(?:[^\x7d-\x83]|\x7f\x04.{4}\x04.{4}\x04.{4})"
_LONGEST_INDEX = 16


class _Walk:
    """A place in the data, and steps from it over what an example is made of."""

    def __init__(self, data: bytearray, at: int) -> None:
        self._data, self.at = data, at

    def example(self) -> None:
        """Go to the end of the example that starts here."""
        self._word(b"<Nnet3Eg> <NumIo> \x04")
        (num_io,) = self._unpack(_INT)
        if not 0 < num_io <= _MOST_NUM_IO:
            raise _OtherFormError
        for _ in range(num_io):
            self._word(b"<NnetIo> ")
            self._name()
            self._word(b"<I1V> \x04")
            self._matrix(self._indexes())
            self._word(b"</NnetIo> ")
        self._word(b"</Nnet3Eg> ")

    def _word(self, word: bytes) -> None:
        if not self._data.startswith(word, self.at):
            self._need(len(word))
            raise _OtherFormError
        self.at += len(word)

    def _need(self, size: int) -> None:
        if self.at + size > len(self._data):
            raise IndexError(size)

    def _unpack(self, form: struct.Struct) -> tuple:
        self._need(form.size)
        values = form.unpack_from(self._data, self.at)
        self.at += form.size
        return values

    def _name(self) -> None:
        end = self._data.find(b" ", self.at, self.at + _LONGEST_NAME)
        if end < 0:
            self._need(_LONGEST_NAME)
        if self._data[self.at : end].split() != [self._data[self.at : end]]:
            raise _OtherFormError
        self.at = end + 1

    def _indexes(self) -> int:
        """Go over a vector of indexes; how many there are."""
        (size,) = self._unpack(_INT)
        if size <= 0:
            raise _OtherFormError
        end = self.at + size
        if _STEPS.match(self._data, self.at, end).end() == end:  # type: ignore[union-attr]
            self.at = end
            return size
        if (match := _indexes_pattern(size).match(self._data, self.at)) is None:
            self._need(_LONGEST_INDEX * size)
            raise _OtherFormError
        self.at = match.end()
        return size

    def _matrix(self, num_rows: int) -> None:
        """Go over a matrix of so many rows."""
        self._need(4)
        if self._data.startswith(b"FM \x04", self.at):
            self.at += 4
            rows, size_byte, cols = self._unpack(_TWO_INTS)
            if size_byte != b"\x04":
                raise _OtherFormError
            self._skip(rows, cols, num_rows, 4 * rows * cols)
        elif self._data.startswith(b"SM \x04", self.at):
            self.at += 4
            self._sparse(num_rows)
        else:
            token = bytes(self._data[self.at : self.at + 4])
            token = token if token in _COMPRESSED_SIZES else token[:3]
            if token not in _COMPRESSED_SIZES:
                raise _OtherFormError
            self.at += len(token)
            rows, cols = self._unpack(_COMPRESSED)
            of_column, of_element = _COMPRESSED_SIZES[token]
            self._skip(rows, cols, num_rows, of_column * cols + of_element * rows * cols)

    def _skip(self, rows: int, cols: int, num_rows: int, size: int) -> None:
        if rows != num_rows or cols <= 0:
            raise _OtherFormError
        self._need(size)
        self.at += size

    def _sparse(self, num_rows: int) -> None:
        """Go over the rows of a sparse matrix if all have equally many elements."""
        if self._unpack(_INT) != (num_rows,):
            raise _OtherFormError
        self._need(13)
        head = bytes(self._data[self.at : self.at + 13])
        dim, count = _TWO_INTS.unpack(head[4:])[::2]
        if head[:4] != b"SV \x04" or head[8] != 4 or dim <= 0 or count < 0:
            raise _OtherFormError
        self._need(num_rows * (len(head) + 10 * count))
        fields = self._unpack(_sparse_rows(num_rows, count))
        width = 1 + 3 * count
        if fields[::width].count(head) != num_rows:
            raise _OtherFormError
        for first in range(1, width, 3):
            columns = fields[first + 1 :: width]
            sizes = fields[first::width] + fields[first + 2 :: width]
            if sizes.count(b"\x04") != len(sizes) or min(columns) < 0 or max(columns) >= dim:
                raise _OtherFormError


@functools.lru_cache(maxsize=64)
def _indexes_pattern(size: int) -> re.Pattern[bytes]:
    return re.compile(_INDEX + rb"{%d}" % size, re.DOTALL)


@functools.lru_cache(maxsize=64)
def _sparse_rows(num_rows: int, count: int) -> struct.Struct:
    return struct.Struct("<" + num_rows * (_SPARSE_HEAD + count * _SPARSE_ELEMENT))
