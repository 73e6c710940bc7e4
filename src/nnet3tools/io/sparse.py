"""Sparse matrices (matrix/sparse-matrix.h) as CSR arrays, and their text and binary forms."""

from __future__ import annotations

import re
import struct

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnet3tools.errors import DataError, quoted
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.io.reader import Reader
from nnet3tools.io.text import cast, format_float, parse_lines
from nnet3tools.io.writer import Writer


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """A matrix in CSR form: row r has elements row_offsets[r] to row_offsets[r + 1] - 1.

    Element i is `values[i]` in column `indices[i]`.
    """

    row_offsets: NDArray[np.int32]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    num_cols: int

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.row_offsets) - 1

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and number of columns."""
        return self.num_rows, self.num_cols

    def __getitem__(self, rows: slice) -> SparseMatrix:
        """The rows from `rows.start` to `rows.stop` - 1."""
        offsets = self.row_offsets[rows.start : rows.stop + 1]
        entries = slice(offsets[0], offsets[-1])
        parts = self.indices[entries], self.values[entries]
        return SparseMatrix(offsets - offsets[0], *parts, self.num_cols)

    @property
    def row_numbers(self) -> NDArray[np.intp]:
        """The row of each stored element, in order."""
        return np.repeat(np.arange(self.num_rows), np.diff(self.row_offsets))

    @classmethod
    def from_counts(
        cls, counts: ArrayLike, indices: ArrayLike, values: ArrayLike, num_cols: int
    ) -> SparseMatrix:
        """Make a matrix from each row's number of elements, and all column numbers and values."""
        offsets = offsets_of(counts)
        columns = np.ascontiguousarray(indices, np.int32)
        return cls(offsets, columns, np.ascontiguousarray(cast(values, np.float32)), num_cols)

    @classmethod
    def from_dense(cls, matrix: NDArray) -> SparseMatrix:
        """Make a matrix of the non-zero elements of a dense matrix."""
        rows, cols = np.nonzero(matrix)
        counts = np.bincount(rows, minlength=len(matrix))
        return cls.from_counts(counts, cols, matrix[rows, cols], matrix.shape[1])

    def to_dense(self) -> NDArray[np.float32]:
        """Convert to a dense matrix; if a row lists a column twice, the last value counts."""
        out = np.zeros(self.shape, np.float32)
        out[self.row_numbers, self.indices] = self.values
        return out

    def select_rows(self, rows: NDArray[np.integer]) -> SparseMatrix:
        """Copy the given rows in the given order; rows may repeat."""
        counts = np.diff(self.row_offsets)[rows]
        starts = np.cumsum(counts) - counts
        elements = np.arange(int(counts.sum())) + np.repeat(self.row_offsets[rows] - starts, counts)
        return self.from_counts(
            counts, self.indices[elements], self.values[elements], self.num_cols
        )

    def row_range(self, row_offset: int, num_rows: int) -> SparseMatrix:
        """Copy `num_rows` rows from `row_offset` on; rows out of range repeat the edge rows."""
        rows = np.arange(row_offset, row_offset + num_rows).clip(0, self.num_rows - 1)
        return self.select_rows(rows)

    def scaled(self, alpha: float) -> SparseMatrix:
        """The matrix multiplied by alpha."""
        return replace(self, values=self.values * np.float32(alpha))

    @classmethod
    def append(cls, parts: list[SparseMatrix]) -> SparseMatrix:
        """Concatenate matrices by rows; DataError if numbers of columns differ."""
        num_cols = parts[0].num_cols
        for part in parts:
            if part.num_cols != num_cols:
                raise DataError(
                    f"cannot append rows of {part.num_cols} columns to rows of {num_cols}"
                )
        counts = np.concatenate([np.diff(part.row_offsets) for part in parts])
        indices = np.concatenate([part.indices for part in parts])
        return cls.from_counts(
            counts, indices, np.concatenate([part.values for part in parts]), num_cols
        )


def offsets_of(counts: ArrayLike) -> NDArray[np.int32]:
    """Index of each row's first element, then the total, (rows + 1,); DataError from 2^31 on."""
    offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    if offsets[-1] >= 1 << 31:
        raise DataError(f"expected fewer than 2^31 elements in all rows, found {offsets[-1]}")
    return offsets.astype(np.int32)


# -- binary: "SM ", the number of rows, then each row's "SV ", dimension, count and elements

_ROW_HEAD = 13  # "SV " and two integers, each with its size byte
_ELEMENTS = rb"(?:\x04.{4}(?:\x04.{4}|\x08.{8}))*"
_ROW = re.compile(rb"SV \x04.{4}\x04.{4}" + _ELEMENTS, re.S)


def read_sparse(reader: Reader) -> SparseMatrix:
    """Read a sparse matrix in text or binary, depending on the reader's mode."""
    return _read_binary(reader) if reader.binary else _read_text(reader)


def write_sparse(writer: Writer, matrix: SparseMatrix) -> None:
    """Write a sparse matrix in text or binary, depending on the writer's mode."""
    if writer.binary:
        writer.write_token("SM").write_int32(matrix.num_rows)
        writer.write_bytes(rows_of_sparse(matrix))
    else:
        writer.write_text(_format(matrix))


def rows_of_sparse(matrix: SparseMatrix) -> bytes:
    """Encode all rows in the binary form: 13 bytes for each row and 10 for each element."""
    counts = matrix.row_offsets[1:] - matrix.row_offsets[:-1]
    head = np.frombuffer(b"SV \x04" + struct.pack("<ici", matrix.num_cols, b"\x04", 0), np.uint8)
    elements = np.empty((len(matrix.values), 10), np.uint8)
    elements[:, 0] = elements[:, 5] = 4
    elements[:, 1:5] = matrix.indices.astype("<i4", copy=False).view(np.uint8).reshape(-1, 4)
    elements[:, 6:] = matrix.values.astype("<f4", copy=False).view(np.uint8).reshape(-1, 4)
    sizes = counts.astype("<i4", copy=False).view(np.uint8).reshape(-1, 4)
    if matrix.num_rows and (counts == counts[0]).all():
        rows = np.empty((matrix.num_rows, _ROW_HEAD + 10 * int(counts[0])), np.uint8)
        rows[:, :_ROW_HEAD] = head
        rows[:, 9:_ROW_HEAD] = sizes
        rows[:, _ROW_HEAD:] = elements.reshape(matrix.num_rows, -1)
        return rows.tobytes()
    heads = np.empty((matrix.num_rows, _ROW_HEAD), np.uint8)
    heads[:] = head
    heads[:, 9:] = sizes
    is_head = np.zeros(heads.size + elements.size, bool)
    starts = _ROW_HEAD * np.arange(matrix.num_rows) + 10 * matrix.row_offsets[:-1].astype(np.int64)
    is_head[starts[:, None] + np.arange(_ROW_HEAD)] = True
    out = np.empty(len(is_head), np.uint8)
    out[is_head] = heads.ravel()
    out[~is_head] = elements.ravel()
    return out.tobytes()


def _read_binary(reader: Reader) -> SparseMatrix:
    """Read a sparse matrix in binary, decoding as many rows at a time as the buffer holds."""
    reader.expect_token("SM")
    num_rows = reader.read_count("a sparse matrix", "rows")
    parts: list[SparseMatrix] = []
    missing, wanted = num_rows, min(1 << 16, 64 * (num_rows + 1))  # guess: rows have few elements
    while missing > 0:
        piece = reader.buffered(wanted)
        part, used = _decode_rows(reader, piece, missing)
        if part is None:
            if wanted <= len(piece):
                wanted *= 2
            elif not reader.more():
                raise reader.error(
                    f"expected {missing} more rows of a sparse matrix, found the end of the "
                    "stream or something else"
                )
            continue
        if parts and part.num_cols != parts[0].num_cols:
            raise reader.error("the rows of a sparse matrix differ in their dimension")
        parts.append(part)
        reader.advance(used)
        missing -= part.num_rows
    whole = parts[0] if len(parts) == 1 else SparseMatrix.append(parts) if parts else _empty()
    return _checked(reader, whole)


def _decode_rows(reader: Reader, piece: bytes, limit: int) -> tuple[SparseMatrix | None, int]:
    """Decode up to `limit` complete rows at the start of `piece`: (matrix, bytes used).

    The matrix is None if no row is complete.
    """
    if (even := _decode_even_rows(piece, limit)) is not None:
        return even
    rows = _ROW.findall(piece)[:limit]
    joined = b"".join(rows)
    if not rows or not piece.startswith(joined):
        if piece[:3] != b"SV "[: len(piece)] or (rows and len(rows) > 1):
            raise reader.error("expected a row of a sparse matrix (SV)")
        return None, 0
    raw = np.frombuffer(joined, np.uint8)
    lengths = np.array(list(map(len, rows)))
    starts = np.cumsum(lengths) - lengths
    counts = _ints_at(raw, starts + 9)
    if (counts < 0).any():
        raise reader.error("a row of a sparse matrix has a negative number of elements")
    size = 14 if any(row[_ROW_HEAD + 5 : _ROW_HEAD + 6] == b"\x08" for row in rows[:50]) else 10
    expected = _ROW_HEAD + size * counts.astype(np.int64)
    if lengths[-1] > expected[-1]:  # the pattern matched bytes after the matrix
        lengths[-1] = expected[-1]
    elif lengths[-1] < expected[-1]:  # the last row is incomplete
        if len(piece) > len(joined) + 14:
            raise reader.error("expected the elements of a row of a sparse matrix")
        lengths, starts, counts = lengths[:-1], starts[:-1], counts[:-1]
    if not len(lengths):
        return None, 0
    if (lengths != expected[: len(lengths)]).any():
        raise reader.error("a row of a sparse matrix has fewer or more elements than it says")
    used = int(lengths.sum())
    dims = _ints_at(raw, starts + 4)
    if (dims != dims[0]).any():
        raise reader.error("the rows of a sparse matrix differ in their dimension")
    return _uneven_rows(raw[:used], starts, counts, size), used


def _uneven_rows(
    raw: NDArray[np.uint8], starts: NDArray, counts: NDArray, size: int
) -> SparseMatrix:
    """Decode valid rows that begin at `starts` in `raw`; row i has `counts[i]` elements.

    `size` is the number of bytes of an element.
    """
    is_element = np.ones(len(raw), bool)
    is_element[starts[:, None] + np.arange(_ROW_HEAD)] = False
    elements = raw[is_element].reshape(-1, size)
    indices = np.ascontiguousarray(elements[:, 1:5]).view("<i4").ravel()
    values = np.ascontiguousarray(elements[:, 6:]).view("<f4" if size == 10 else "<f8").ravel()
    return SparseMatrix.from_counts(counts, indices, values, int(_ints_at(raw, starts[:1] + 4)[0]))


def sparse_of_rows(data: bytes, num_rows: int) -> SparseMatrix:
    """Decode `num_rows` (at least one) valid rows in binary form: 13 bytes each, 10 per element."""
    if (even := _decode_even_rows(data, num_rows)) is not None:
        return even[0]
    lengths = np.array(list(map(len, _ROW.findall(data))))
    starts = np.cumsum(lengths) - lengths
    raw = np.frombuffer(data, np.uint8)
    return _uneven_rows(raw, starts, (lengths - _ROW_HEAD) // 10, 10)


def _decode_even_rows(piece: bytes, num_rows: int) -> tuple[SparseMatrix, int] | None:
    """Decode `num_rows` rows of equal length in `piece`: (matrix, bytes used); else None."""
    count = int.from_bytes(piece[9:13], "little", signed=True) if len(piece) >= 13 else -1
    used = (_ROW_HEAD + 10 * count) * num_rows
    if count < 0 or used > min(len(piece), 1 << 31):
        return None
    rows = np.frombuffer(piece, np.uint8, used).reshape(num_rows, -1)
    elements = rows[:, _ROW_HEAD:].reshape(-1, 10)
    if (rows[:, :_ROW_HEAD] != rows[0, :_ROW_HEAD]).any() or piece[:4] != b"SV \x04":
        return None
    if piece[8] != 4 or (elements[:, 0] != 4).any() or (elements[:, 5] != 4).any():
        return None
    indices = np.ascontiguousarray(elements[:, 1:5]).view("<i4").ravel()
    values = np.ascontiguousarray(elements[:, 6:]).view("<f4").ravel()
    offsets = count * np.arange(num_rows + 1, dtype=np.int32)
    num_cols = int.from_bytes(piece[4:8], "little", signed=True)
    return SparseMatrix(offsets, indices, values, num_cols), used


def _ints_at(raw: NDArray[np.uint8], starts: NDArray) -> NDArray[np.int32]:
    return np.ascontiguousarray(raw[starts[:, None] + np.arange(4)]).view("<i4").ravel()


def _checked(reader: Reader, matrix: SparseMatrix) -> SparseMatrix:
    if matrix.num_cols < 0:
        raise reader.error(f"expected a sparse matrix, found one of {matrix.num_cols} columns")
    wrong = np.flatnonzero((matrix.indices < 0) | (matrix.indices >= matrix.num_cols))
    if wrong.size:
        raise reader.error(
            f"column {matrix.indices[wrong[0]]} of a sparse matrix of {matrix.num_cols} columns"
        )
    return matrix


def _empty() -> SparseMatrix:
    return SparseMatrix.from_counts([], [], [], 0)


# -- text: "rows=2 dim=20 [ 1 0.4 9 1.2 ] dim=20 [ ] \n"

_TEXT_ROWS = re.compile(rb"(?:\s*dim=[0-9]+\s*\[[^\[\]=]*\])*")


def _format(matrix: SparseMatrix) -> str:
    words = np.empty((len(matrix.values), 2), object)
    words[:, 0] = matrix.indices
    words[:, 1] = list(map(format_float, matrix.values.tolist()))
    head = f"dim={matrix.num_cols} [ "
    counts = np.diff(matrix.row_offsets).tolist()
    template = "".join(head + "%d %s " * count + "] " for count in counts)
    return f"rows={matrix.num_rows} " + template % tuple(words.ravel()) + "\n"


def _read_text(reader: Reader) -> SparseMatrix:
    token = reader.read_token()
    if (match := re.fullmatch(r"rows=([0-9]{1,10})", token)) is None:
        raise reader.error(f"expected a sparse matrix (rows=...), found {quoted(token)}")
    body = reader.until_brackets(int(match[1]), f"a sparse matrix of {match[1]} rows")
    if _TEXT_ROWS.fullmatch(body) is None:
        raise reader.error("expected rows of a sparse matrix such as dim=20 [ 1 0.4 9 1.2 ]")
    plain = body.replace(b"\n", b" ").replace(b"dim=", b" ").replace(b"[", b" ")
    try:
        numbers, counts = parse_lines(plain.replace(b"]", b"\n"), np.float64)
    except ValueError as error:
        raise reader.error(f"in a sparse matrix: {error}") from None
    if (counts % 2 == 0).any():
        raise reader.error("a row of a sparse matrix has a column without a value")
    if not len(counts):
        return _empty()
    first = np.cumsum(counts) - counts
    dims, pairs = numbers[first], np.delete(numbers, first).reshape(-1, 2)
    if dims[0] >= 1 << 31:
        raise reader.error(f"expected a sparse matrix of fewer than 2^31 columns, found {dims[0]}")
    if (dims != dims[0]).any() or (pairs[:, 0] != pairs[:, 0].astype(np.int32)).any():
        raise reader.error("the rows of a sparse matrix differ in dimension, or a column is odd")
    return _checked(
        reader, SparseMatrix.from_counts(counts // 2, pairs[:, 0], pairs[:, 1], int(dims[0]))
    )
