"""Walking over values in binary from size to size, to find where they end without reading them."""

from __future__ import annotations

import functools
import re
import struct

from nnet3tools.io.matrix_forms import COMPRESSED_SIZES, AnyBytes, MatrixForm

__all__ = ["ByteWalk", "OtherFormError"]


class OtherFormError(Exception):
    """Something that is none of the forms walked over: the full reader shall look at it."""


_INT = struct.Struct("<i")
_TWO_INTS = struct.Struct("<ici")
_COMPRESSED = struct.Struct("<8xii")
_COMPRESSED_SIZES = {token.encode() + b" ": sizes for token, sizes in COMPRESSED_SIZES.items()}
_SPARSE_HEAD, _SPARSE_ELEMENT = "13s", "cic4x"
"""A row's "SV ", dimension and number of elements; an element's column and value."""
_LONGEST_NAME = 1000
_STEPS = re.compile(rb"[^\x7d-\x83]*")
"""Indexes of which t moved by less than 125 since the one before, and nothing else did."""
_INDEX = rb"(?:[^\x7d-\x83]|\x7f\x04.{4}\x04.{4}\x04.{4})"
_LONGEST_INDEX = 16


class ByteWalk:
    """A place in the data, and steps from it over what is expected there.

    Each step checks what the full reader would. It raises IndexError if what is here may be right
    but goes on beyond the data, and OtherFormError if it is something else. `matrices` gathers
    where the matrices, and what else differs between like examples, began and ended, with their
    forms.
    """

    def __init__(self, data: bytes | bytearray, at: int) -> None:
        self.data, self.at = data, at
        self.matrices: list[tuple[int, int, MatrixForm | AnyBytes]] = []

    def word(self, word: bytes) -> None:
        """Go over these bytes."""
        if not self.data.startswith(word, self.at):
            self.need(len(word))
            raise OtherFormError
        self.at += len(word)

    def need(self, size: int) -> None:
        """IndexError unless so many bytes are there."""
        if self.at + size > len(self.data):
            raise IndexError(size)

    def unpack(self, form: struct.Struct) -> tuple:
        """Go over some values, and give them."""
        self.need(form.size)
        values = form.unpack_from(self.data, self.at)
        self.at += form.size
        return values

    def integer(self) -> int:
        """Go over an integer, without its size byte."""
        return self.unpack(_INT)[0]

    def skip(self, size: int) -> None:
        """Go over so many bytes."""
        self.need(size)
        self.at += size

    def name(self) -> None:
        """Go over a word and the space after it."""
        end = self.data.find(b" ", self.at, self.at + _LONGEST_NAME)
        if end < 0:
            self.need(_LONGEST_NAME)
            raise OtherFormError
        if self.data[self.at : end].split() != [self.data[self.at : end]]:
            raise OtherFormError
        self.at = end + 1

    def anything(self, size: int) -> None:
        """Go over bytes that differ between examples that are alike."""
        self.skip(size)
        self.matrices.append((self.at - size, self.at, AnyBytes(size)))

    def index_vector(self) -> int:
        """Go over a vector of indexes; how many there are, at least one."""
        self.word(b"<I1V> \x04")
        size = self.integer()
        if size <= 0:
            raise OtherFormError
        end = self.at + size
        if _STEPS.match(self.data, self.at, end).end() == end:  # type: ignore[union-attr]
            self.at = end
            return size
        if (match := _indexes_pattern(size).match(self.data, self.at)) is None:
            self.need(_LONGEST_INDEX * size)
            raise OtherFormError
        self.at = match.end()
        return size

    def matrix(self, num_rows: int) -> None:
        """Go over a matrix of so many rows, of any kind."""
        begin = self.at
        self.need(4)
        if self.data.startswith(b"FM \x04", begin):
            self.at += 4
            form = self._full()
        elif self.data.startswith(b"SM \x04", begin):
            self.at += 4
            form = self._sparse(num_rows)
        else:
            form = self._compressed()
        if form.num_rows != num_rows:
            raise OtherFormError
        self.matrices.append((begin, self.at, form))

    def _full(self) -> MatrixForm:
        rows, size_byte, cols = self.unpack(_TWO_INTS)
        if size_byte != b"\x04" or rows <= 0 or cols <= 0:
            raise OtherFormError
        self.skip(4 * rows * cols)
        return MatrixForm("FM", rows, cols)

    def _compressed(self) -> MatrixForm:
        token = bytes(self.data[self.at : self.at + 4])
        token = token if token in _COMPRESSED_SIZES else token[:3]
        if token not in _COMPRESSED_SIZES:
            raise OtherFormError
        self.at += len(token)
        rows, cols = self.unpack(_COMPRESSED)
        if rows <= 0 or cols <= 0:
            raise OtherFormError
        of_column, of_element = _COMPRESSED_SIZES[token]
        self.skip(of_column * cols + of_element * rows * cols)
        return MatrixForm(token.decode().rstrip(), rows, cols)

    def _sparse(self, num_rows: int) -> MatrixForm:
        if self.integer() != num_rows:
            raise OtherFormError
        self.need(13)
        head = bytes(self.data[self.at : self.at + 13])
        dim, count = _TWO_INTS.unpack(head[4:])[::2]
        if head[:4] != b"SV \x04" or head[8] != 4 or dim <= 0 or count < 0:
            raise OtherFormError
        if not self._even_rows(num_rows, head, dim, count):
            count = max(self._row(head[:9], dim) for _ in range(num_rows))
        return MatrixForm("SM", num_rows, dim, count)

    def _even_rows(self, num_rows: int, head: bytes, dim: int, count: int) -> bool:
        """Go over all rows at once if they have equally many elements, as targets mostly do."""
        if self.at + num_rows * (len(head) + 10 * count) > len(self.data):
            return False
        form = _sparse_rows(num_rows, count)
        fields = form.unpack_from(self.data, self.at)
        width = 1 + 3 * count
        if fields[::width].count(head) != num_rows:
            return False
        for first in range(1, width, 3):
            columns = fields[first + 1 :: width]
            sizes = fields[first::width] + fields[first + 2 :: width]
            if sizes.count(b"\x04") != len(sizes) or min(columns) < 0 or max(columns) >= dim:
                raise OtherFormError
        self.at += form.size
        return True

    def _row(self, head: bytes, dim: int) -> int:
        """Go over a row of a sparse matrix; how many elements it has."""
        self.word(head)
        count = self.integer()
        if count < 0:
            raise OtherFormError
        self.need(10 * count)
        cells = bytes(self.data[self.at : self.at + 10 * count])
        columns = struct.unpack("<" + count * "xixxxxx", cells)
        if cells[::5].count(4) != 2 * count or (
            count and not 0 <= min(columns) <= max(columns) < dim
        ):
            raise OtherFormError
        self.at += 10 * count
        return count


@functools.lru_cache(maxsize=64)
def _indexes_pattern(size: int) -> re.Pattern[bytes]:
    return re.compile(_INDEX + rb"{%d}" % size, re.DOTALL)


@functools.lru_cache(maxsize=64)
def _sparse_rows(num_rows: int, count: int) -> struct.Struct:
    return struct.Struct("<" + num_rows * (_SPARSE_HEAD + count * _SPARSE_ELEMENT))
