"""Binary forms of matrices as regular expressions.

An expression matches exactly the bytes that `read_general_matrix` accepts for a matrix of the form
and size, including the range of sparse columns. A match therefore proves that the matrix is valid.
The module does not use NumPy, which programs that copy bytes do not import.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache

from nnet3tools.fast_dataclasses import dataclass

FULL_HEAD, SPARSE_HEAD = 13, 8
"""Number of bytes before the elements of FM, and before the rows of SM."""
_SIZES = {"FM": (0, 4), "CM": (8, 1), "CM2": (0, 2), "CM3": (0, 1)}
"""Bytes per column for percentiles, and per element.

The header of a compressed matrix has 17 bytes and the token: blank, minimum, range, numbers of rows
and columns.
"""
_HEAD = re.compile(
    rb"(FM) \x04(.{4})\x04(.{4})|(SM) \x04(.{4})SV \x04(.{4})\x04|(CM[23]?) .{8}(.{4})(.{4})",
    re.DOTALL,
)
"""The start of a matrix: token, number of rows and number of columns."""
LONGEST_HEAD = 20


def stored_form(data: bytes | bytearray, at: int) -> MatrixForm | None:
    """The form of the matrix whose first bytes are at `at`; None for an empty or unknown one.

    For a sparse matrix, `most` (the largest number of elements in a row) is 0: it is not counted.
    """
    if (match := _HEAD.match(data, at)) is None:
        return None
    token, rows, cols = (group for group in match.groups() if group is not None)
    sizes = [int.from_bytes(size, "little", signed=True) for size in (rows, cols)]
    return MatrixForm(token.decode(), *sizes) if min(sizes) > 0 else None


@dataclass(frozen=True)
class AnyBytes:
    """The form of a value with `size` arbitrary bytes, used like a MatrixForm; `most` is unused."""

    size: int
    most: int = 0

    @property
    def pattern(self) -> bytes:
        """A regular expression, with one group, that matches these bytes."""
        return b"(.{%d})" % self.size

    @property
    def pieces(self) -> tuple[tuple[bytes, int], ...]:
        """As MatrixForm.pieces: only arbitrary bytes."""
        return ((b"", self.size),)


@dataclass(frozen=True)
class MatrixForm:
    """The stored form of a matrix in binary data: its token is FM, CM, CM2, CM3 or SM.

    `most` is the largest number of elements in a row of a sparse matrix, else 0.
    """

    token: str
    num_rows: int
    num_cols: int
    most: int = 0

    @property
    def pattern(self) -> bytes:
        """A regular expression, with one group, that matches the whole matrix."""
        return b"(" + self._pattern + b")"

    @property
    def size(self) -> int:
        """The size in bytes of a matrix that is not sparse."""
        head = FULL_HEAD if self.token == "FM" else len(self.token) + 17
        return head + self._size_of_elements

    @property
    def _size_of_elements(self) -> int:
        of_column, of_element = _SIZES[self.token]
        return of_column * self.num_cols + of_element * self.num_rows * self.num_cols

    @property
    def head_of_row(self) -> bytes:
        """The first bytes of each row of a sparse matrix, before the number of elements."""
        return b"SV \4" + struct.pack("<i", self.num_cols) + b"\4"

    @property
    def _pattern(self) -> bytes:
        if self.token == "SM":
            start = re.escape(b"SM \4" + struct.pack("<i", self.num_rows))
            return start + rb"(?:%b){%d}" % (self._row_pattern, self.num_rows)
        return b"".join([re.escape(text) + b".{%d}" % size for text, size in self.pieces])

    @property
    def pieces(self) -> tuple[tuple[bytes, int], ...]:
        """Bytes and the number of arbitrary bytes after them; empty for a sparse matrix."""
        if self.token == "SM":
            return ()
        rows, cols, size = self.num_rows, self.num_cols, self._size_of_elements
        if self.token == "FM":
            return ((b"FM " + struct.pack("<cici", b"\4", rows, b"\4", cols), size),)
        return (self.token.encode() + b" ", 8), (struct.pack("<ii", rows, cols), size)

    @property
    def _row_pattern(self) -> bytes:
        """A regular expression for a row of a sparse matrix, with up to `most` elements."""
        element = _element_pattern(self.num_cols)
        counts = b"|".join(
            re.escape(struct.pack("<i", count)) + (element + b"{%d}" % count if count else b"")
            for count in (*range(1, self.most + 1), 0)
        )
        return re.escape(self.head_of_row) + b"(?:" + counts + b")"


@lru_cache(maxsize=64)
def sparse_elements(num_cols: int) -> re.Pattern[bytes]:
    """A regular expression for the elements of a row of a sparse matrix with `num_cols` columns."""
    return re.compile(_element_pattern(num_cols) + b"*", re.DOTALL)


@lru_cache(maxsize=64)
def sparse_rows(num_cols: int, count: int) -> re.Pattern[bytes]:
    """A regular expression for rows of a sparse matrix (`num_cols`) with `count` elements each."""
    row = MatrixForm("SM", 1, num_cols).head_of_row + struct.pack("<i", count)
    elements = _element_pattern(num_cols) + b"{%d}" % count if count else b""
    return re.compile(b"(?:" + re.escape(row) + elements + b")*+", re.DOTALL)


def _element_pattern(num_cols: int) -> bytes:
    return rb"(?:\x04%b\x04.{4})" % _below(num_cols)


def _below(limit: int) -> bytes:
    """A regular expression for a little-endian 4-byte integer from 0 to limit - 1."""
    digits = struct.pack("<i", limit)
    choices = []
    for place in reversed(range(4)):
        if digits[place]:
            lower = b"[\\x00-\\x%02x]" % (digits[place] - 1)
            choices.append(b".{%d}" % place + lower + re.escape(digits[place + 1 :]))
    return b"(?:" + b"|".join(reversed(choices)) + b")"
