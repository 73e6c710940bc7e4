"""Binary forms of matrices as regular expressions.

An expression matches exactly the bytes that `read_general_matrix` accepts for a matrix of the form
and size, including the range of sparse columns. A match therefore proves that the matrix is valid.
The module does not use NumPy, which programs that copy bytes do not import.
"""

import re
import struct
from dataclasses import dataclass
from functools import lru_cache

FULL_HEAD, SPARSE_HEAD = 13, 8
"""Number of bytes before the elements of FM, and before the rows of SM."""
COMPRESSED_SIZES = {"CM": (8, 1), "CM2": (0, 2), "CM3": (0, 1)}
"""Bytes per column for percentiles, and per element.

The header before them has 17 bytes and the token: blank, minimum, range, numbers of rows and
columns.
"""


@dataclass(frozen=True)
class AnyBytes:
    """The form of a value with `longest` arbitrary bytes; can stand in place of a MatrixForm."""

    longest: int
    most: int = 0

    @property
    def pattern(self) -> bytes:
        """A regular expression, with one group, that matches these bytes."""
        return b"(.{%d})" % self.longest


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
    def longest(self) -> int:
        """Largest size in bytes; a row of a sparse matrix has at most `most` elements."""
        rows, cols = self.num_rows, self.num_cols
        match self.token:
            case "FM":
                return FULL_HEAD + 4 * rows * cols
            case "SM":
                return SPARSE_HEAD + rows * (13 + 10 * self.most)
        of_column, of_element = COMPRESSED_SIZES[self.token]
        return len(self.token) + 17 + of_column * cols + of_element * rows * cols

    @property
    def _pattern(self) -> bytes:
        rows, cols = self.num_rows, self.num_cols
        match self.token:
            case "FM":
                return full_pattern(rows, cols)
            case "SM":
                start = re.escape(b"SM \4" + struct.pack("<i", rows))
                return start + rb"(?:%b){%d}" % (sparse_row_pattern(cols, self.most), rows)
        start = self.token.encode() + b" .{8}" + re.escape(struct.pack("<ii", rows, cols))
        of_column, of_element = COMPRESSED_SIZES[self.token]
        return start + b".{%d}" % (of_column * cols + of_element * rows * cols)


def full_pattern(num_rows: int, num_cols: int) -> bytes:
    """A regular expression that matches a float32 matrix of this size in binary form."""
    sizes = struct.pack("<cici", b"\4", num_rows, b"\4", num_cols)
    return b"FM " + re.escape(sizes) + b".{%d}" % (4 * num_rows * num_cols)


@lru_cache(maxsize=64)
def sparse_row_pattern(num_cols: int, most: int) -> bytes:
    """A regular expression for a row of a sparse float32 matrix, of up to `most` elements."""
    element = rb"(?:\x04%b\x04.{4})" % _below(num_cols)
    counts = b"|".join(
        re.escape(struct.pack("<i", count)) + (element + b"{%d}" % count if count else b"")
        for count in (*range(1, most + 1), 0)
    )
    return re.escape(b"SV \4" + struct.pack("<i", num_cols) + b"\4") + b"(?:" + counts + b")"


def _below(limit: int) -> bytes:
    """A regular expression for a little-endian 4-byte integer from 0 to limit - 1."""
    digits = struct.pack("<i", limit)
    choices = []
    for place in reversed(range(4)):
        if digits[place]:
            lower = b"[\\x00-\\x%02x]" % (digits[place] - 1)
            choices.append(b".{%d}" % place + lower + re.escape(digits[place + 1 :]))
    return b"(?:" + b"|".join(reversed(choices)) + b")"
