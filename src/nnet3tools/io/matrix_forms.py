"""The forms that matrices have in binary, as regular expressions over their bytes.

An expression matches exactly what `read_general_matrix` would take for a matrix of that form and
size, sparse columns in range included, so that who finds a match need not read the matrix to know
that it is sound. Without NumPy, which programs that pass bytes on do not load.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import lru_cache

__all__ = [
    "COMPRESSED_SIZES",
    "FULL_HEAD",
    "SPARSE_HEAD",
    "AnyBytes",
    "MatrixForm",
    "full_pattern",
    "sparse_row_pattern",
]

FULL_HEAD, SPARSE_HEAD = 13, 8
"""Bytes before the elements of FM, and before the rows of SM."""
COMPRESSED_SIZES = {"CM": (8, 1), "CM2": (0, 2), "CM3": (0, 1)}
"""Bytes of the percentiles of a column, and of an element; before them are the token and a blank,
minimum and range, and the numbers of rows and columns, 17 bytes and the token's."""


@dataclass(frozen=True)
class AnyBytes:
    """So many bytes that may be any, in the place of a matrix: `longest` of them."""

    longest: int
    most: int = 0

    @property
    def pattern(self) -> bytes:
        """Matches them, as a group."""
        return b"(.{%d})" % self.longest


@dataclass(frozen=True)
class MatrixForm:
    """What a matrix is stored as: `token` is FM, CM, CM2, CM3 or SM.

    `most` is the largest number of elements in a row of a sparse one; 0 for all others.
    """

    token: str
    num_rows: int
    num_cols: int
    most: int = 0

    @property
    def pattern(self) -> bytes:
        """Matches the whole matrix, as a group."""
        return b"(" + self._pattern + b")"

    @property
    def longest(self) -> int:
        """Bytes of a matrix; of a sparse one with as many elements as may be in all rows."""
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
    """Matches a matrix of float32 numbers."""
    sizes = struct.pack("<cici", b"\4", num_rows, b"\4", num_cols)
    return b"FM " + re.escape(sizes) + b".{%d}" % (4 * num_rows * num_cols)


@lru_cache(maxsize=64)
def sparse_row_pattern(num_cols: int, most: int) -> bytes:
    """Matches a row of a sparse matrix with up to `most` elements, each of a float32 number."""
    element = rb"(?:\x04%b\x04.{4})" % _below(num_cols)
    counts = b"|".join(
        re.escape(struct.pack("<i", count)) + (element + b"{%d}" % count if count else b"")
        for count in (*range(1, most + 1), 0)
    )
    return re.escape(b"SV \4" + struct.pack("<i", num_cols) + b"\4") + b"(?:" + counts + b")"


def _below(limit: int) -> bytes:
    """Matches the four bytes of an integer from 0 to limit - 1, the lowest byte first."""
    digits = struct.pack("<i", limit)
    choices = []
    for place in reversed(range(4)):
        if digits[place]:
            lower = b"[\\x00-\\x%02x]" % (digits[place] - 1)
            choices.append(b".{%d}" % place + lower + re.escape(digits[place + 1 :]))
    return b"(?:" + b"|".join(reversed(choices)) + b")"
