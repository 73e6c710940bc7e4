"""ByteWalk: finds the end of binary values from the sizes in them, without reading elements."""

import functools
import re
import struct
from typing import NamedTuple

from nnet3tools.fast_dataclasses import replace
from nnet3tools.io.matrix_forms import (
    LONGEST_HEAD,
    SPARSE_HEAD,
    AnyBytes,
    MatrixForm,
    sparse_elements,
    sparse_rows,
    stored_form,
)


class OtherFormError(Exception):
    """Raised by ByteWalk for data of an unknown form or with an error: use the full reader."""


class WalkedIndexes(NamedTuple):
    """The number of Indexes in an encoded vector, their bytes, and the steps of t between them.

    If n = x = 0 in all rows and t changes by less than 125, `steps` has a byte per row: t minus the
    t of the row before (0 in the first row if its t is 125 or more). Otherwise `steps` is None.
    """

    num_rows: int
    encoded: bytes
    steps: bytes | None


_INT = struct.Struct("<i")
_LONGEST_NAME = 1000
_STEPS = re.compile(rb"[^\x7d-\x83]*")
"""Indexes that differ from the one before only by a step of t below 125."""
_FAR_INDEX = re.compile(rb"\x7f\x04\0{4}\x04.{4}\x04\0{4}", re.DOTALL)
"""A full index with n = x = 0."""
_INDEX = rb"(?:[^\x7d-\x83]|\x7f\x04.{4}\x04.{4}\x04.{4})"
_LONGEST_INDEX = 16


class ByteWalk:
    """A position in binary data, with methods that check the next value and move past it.

    A method raises IndexError if the data end too early, and OtherFormError if another value
    follows than expected. `holes` lists (begin, end, form) of the bytes of each value, such as a
    matrix, that may differ between records of equal structure.
    """

    def __init__(self, data: bytes | bytearray, at: int) -> None:
        self.data, self.at = data, at
        self.holes: list[tuple[int, int, MatrixForm | AnyBytes | None]] = []

    def word(self, word: bytes) -> None:
        """Move past the bytes `word`; OtherFormError if other bytes follow."""
        if not self.data.startswith(word, self.at):
            self.need(len(word))
            raise OtherFormError
        self.at += len(word)

    def need(self, size: int) -> None:
        """Raise IndexError unless `size` more bytes are present."""
        if self.at + size > len(self.data):
            raise IndexError(size)

    def unpack(self, form: struct.Struct) -> tuple:
        """Move past the values of the struct `form` and return them."""
        self.need(form.size)
        values = form.unpack_from(self.data, self.at)
        self.at += form.size
        return values

    def integer(self) -> int:
        """Move past a 4-byte integer that has no size byte before it, and return the integer."""
        return self.unpack(_INT)[0]

    def skip(self, size: int) -> None:
        """Move `size` bytes ahead."""
        self.need(size)
        self.at += size

    def name(self) -> None:
        """Move past any word and the space after it."""
        end = self.data.find(b" ", self.at, self.at + _LONGEST_NAME)
        if end < 0:
            self.need(_LONGEST_NAME)
            raise OtherFormError
        if self.data[self.at : end].split() != [self.data[self.at : end]]:
            raise OtherFormError
        self.at = end + 1

    def int32(self) -> int:
        """Move past an int32 with its size byte and return it."""
        self.word(b"\x04")
        return self.integer()

    def flag(self) -> bool:
        """Move past a boolean, stored as T or F, and return it."""
        self.need(1)
        is_true = self.data.startswith(b"T", self.at)
        self.word(b"T" if is_true else b"F")
        return is_true

    def float32(self) -> None:
        """Move past a float32; append (begin, end, AnyBytes(4)) for its bytes to `self.holes`."""
        self.word(b"\x04")
        self.skip(4)
        self.add_hole(self.at - 4, AnyBytes(4))

    def float_vector(self) -> tuple[float, ...]:
        """Move past a float32 vector and return it; add (begin, end, None: no form) to `holes`."""
        self.word(b"FV \x04")
        size = self.integer()
        if size < 0:
            raise OtherFormError
        begin = self.at
        self.skip(4 * size)
        self.add_hole(begin)
        return struct.unpack_from(f"<{size}f", self.data, begin)

    def add_hole(self, begin: int, form: MatrixForm | AnyBytes | None = None) -> None:
        """Append (`begin`, this position, `form`) to `holes`; `form` is None if sizes may vary."""
        self.holes.append((begin, self.at, form))

    def index_vector(self) -> WalkedIndexes:
        """Move past a vector of Indexes, not empty; return its length, and t's steps if small."""
        self.word(b"<I1V> \x04")
        size = self.integer()
        if size <= 0:
            raise OtherFormError
        is_far = _FAR_INDEX.match(self.data, self.at) is not None
        begin = self.at + _LONGEST_INDEX * is_far
        end = begin + size - is_far
        if _STEPS.match(self.data, begin, end).end() == end:  # type: ignore[union-attr]
            self.at = end
            steps = bytes(self.data[begin:end])
            return WalkedIndexes(size, steps, is_far * b"\0" + steps)
        if (match := _indexes_pattern(size).match(self.data, self.at)) is None:
            self.need(_LONGEST_INDEX * size)
            raise OtherFormError
        self.at = match.end()
        return WalkedIndexes(size, match.group(), None)

    def matrix(self, num_rows: int) -> None:
        """Move past a matrix of `num_rows` rows; append (begin, end, form) to `self.holes`."""
        begin = self.at
        if (form := stored_form(self.data, begin)) is None:
            self.need(LONGEST_HEAD)
            raise OtherFormError
        if form.num_rows != num_rows:
            raise OtherFormError
        if form.token == "SM":
            form = replace(form, most=self._sparse_rows(form))
        else:
            self.skip(form.size)
        self.add_hole(begin, form)

    def _sparse_rows(self, form: MatrixForm) -> int:
        """Move past a sparse matrix of size `form`; return the most elements that a row has."""
        self.skip(SPARSE_HEAD)
        head, elements = form.head_of_row, sparse_elements(form.num_cols)
        most, before, num_left = 0, -1, form.num_rows
        while num_left:
            self.word(head)
            count = self.integer()
            begin = self.at
            self.skip(10 * count)
            if count < 0 or not elements.fullmatch(self.data, begin, self.at):
                raise OtherFormError
            most, num_left = max(most, count), num_left - 1
            if count == before:  # rows with the same number are passed over together
                size = len(head) + 4 + 10 * count
                same = sparse_rows(form.num_cols, count)
                end = same.match(self.data, self.at, self.at + size * num_left).end()  # type: ignore[union-attr]
                num_left -= (end - self.at) // size
                self.at = end
            before = count
        return most


@functools.lru_cache(maxsize=64)
def _indexes_pattern(size: int) -> re.Pattern[bytes]:
    return re.compile(_INDEX + rb"{%d}" % size, re.DOTALL)
