"""Kaldi's GeneralMatrix: a matrix that is full, compressed or sparse, and operations on all three.

Examples keep each matrix in its stored form, so that files are copied byte for byte.
"""

import io
import itertools
import struct

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError, NotFiniteError, ProgramError
from nnet3tools.io.compressed import (
    CompressedMatrix,
    CompressionMethod,
    read_compressed,
    write_compressed,
)
from nnet3tools.io.reader import Reader
from nnet3tools.io.sparse import SparseMatrix, read_sparse, rows_of_sparse, write_sparse
from nnet3tools.io.writer import Writer

GeneralMatrix = np.ndarray | CompressedMatrix | SparseMatrix
"""Each of the three types has `.shape`; the dense one is float32."""


def read_general_matrix(reader: Reader) -> GeneralMatrix:
    """Read a full, compressed or sparse matrix; a matrix without rows becomes a full one."""
    token = reader.peek_token()
    matrix: GeneralMatrix
    if reader.binary and token in ("CM", "CM2", "CM3"):
        matrix = read_compressed(reader)
    elif token == "SM" if reader.binary else token.startswith("rows="):
        matrix = read_sparse(reader)
    else:
        matrix = reader.read_matrix()
    return matrix if matrix.shape[0] else np.empty((0, 0), np.float32)


def write_general_matrix(writer: Writer, matrix: GeneralMatrix) -> None:
    """Write a full, compressed or sparse matrix; if it has no rows, as full, as Kaldi does."""
    if matrix.shape[0] == 0:
        writer.write_matrix(np.empty((0, 0), np.float32))
    elif isinstance(matrix, CompressedMatrix):
        write_compressed(writer, matrix)
    elif isinstance(matrix, SparseMatrix):
        write_sparse(writer, matrix)
    else:
        writer.write_matrix(np.asarray(matrix, np.float32))


def encode(matrix: GeneralMatrix) -> bytes:
    """The binary form of a matrix in a file."""
    file = io.BytesIO()
    write_general_matrix(Writer(file), matrix)
    return file.getvalue()


def encoded_parts(joined: np.ndarray | SparseMatrix, num: int) -> list[bytes]:
    """The binary form of each of `num` matrices of equal size, full or sparse, joined by rows."""
    num_rows, num_cols = joined.shape[0] // num, joined.shape[1]
    size = struct.pack("<ci", b"\4", num_rows)
    if isinstance(joined, SparseMatrix):
        head, data = b"SM " + size, rows_of_sparse(joined)
        ends = 13 * num_rows * np.arange(num + 1) + np.int64(10) * joined.row_offsets[::num_rows]
    else:
        head, data = b"FM " + size + struct.pack("<ci", b"\4", num_cols), joined.tobytes()
        ends = 4 * num_rows * num_cols * np.arange(num + 1)
    return [head + data[a:b] for a, b in itertools.pairwise(ends.tolist())]


def to_dense(matrix: GeneralMatrix) -> NDArray[np.float32]:
    """Convert a matrix to dense float32; a dense float32 matrix is not copied."""
    return np.asarray(matrix, np.float32) if isinstance(matrix, np.ndarray) else matrix.to_dense()


def row_range(matrix: GeneralMatrix, row_offset: int, num_rows: int) -> GeneralMatrix:
    """Cut `num_rows` rows from `row_offset` on; rows out of range repeat the edge rows."""
    if num_rows == 0:
        return np.empty((0, 0), np.float32)
    if matrix.shape[0] == 0:
        raise ProgramError("a range of rows of a matrix without rows")
    if isinstance(matrix, np.ndarray):
        return matrix[np.arange(row_offset, row_offset + num_rows).clip(0, len(matrix) - 1)]
    return matrix.row_range(row_offset, num_rows)


def append_rows(parts: list[GeneralMatrix]) -> GeneralMatrix:
    """Concatenate matrices by rows: sparse if all non-empty ones are sparse, else dense."""
    parts = [part for part in parts if part.shape[0]]
    if not parts:
        return np.empty((0, 0), np.float32)
    if len(parts) == 1:
        return parts[0] if isinstance(parts[0], SparseMatrix) else to_dense(parts[0])
    sparse = [part for part in parts if isinstance(part, SparseMatrix)]
    if len(sparse) == len(parts):
        return SparseMatrix.append(sparse)
    columns = sorted({part.shape[1] for part in parts})
    if len(columns) > 1:
        raise DataError(f"cannot append rows of {columns[0]} and of {columns[1]} columns")
    return np.concatenate([to_dense(part) for part in parts])


def filter_rows(matrix: GeneralMatrix, keep: NDArray[np.bool_]) -> GeneralMatrix:
    """The rows where `keep` (rows,) is True; a compressed matrix that loses rows becomes dense."""
    if keep.all():
        return matrix
    if isinstance(matrix, SparseMatrix):
        return matrix.select_rows(np.flatnonzero(keep))
    return to_dense(matrix)[keep]


def scale(matrix: GeneralMatrix, alpha: float) -> GeneralMatrix:
    """The matrix multiplied by alpha, stored as before: full, compressed or sparse."""
    if isinstance(matrix, np.ndarray):
        return matrix * np.float32(alpha)
    return matrix.scaled(alpha)


def compress(
    matrix: GeneralMatrix, method: CompressionMethod = CompressionMethod.AUTOMATIC
) -> GeneralMatrix:
    """Compress a dense matrix that has rows; return any other matrix unchanged."""
    if isinstance(matrix, np.ndarray) and matrix.shape[0]:
        return CompressedMatrix.from_dense(matrix, method)
    return matrix


def check_finite(what: str, matrix: GeneralMatrix) -> None:
    """Raise NotFiniteError, with the name `what`, if a matrix or vector has NaN or infinity.

    For a compressed matrix, the minimum and the range are checked.
    """
    values = matrix
    if isinstance(matrix, SparseMatrix):
        values = matrix.values
    elif isinstance(matrix, CompressedMatrix):
        values = np.array([matrix.min_value, matrix.range])
    assert isinstance(values, np.ndarray)
    # Fast test first: a finite sum implies finite elements (unless huge values overflow the sum).
    with np.errstate(invalid="ignore"):
        if np.isfinite(values.sum(dtype=np.float64)) or np.isfinite(values).all():
            return
    at = np.argwhere(~np.isfinite(values))[0]
    value = f"{values[tuple(at)]:g}"
    names = ("row", "column") if values is matrix else ("element",)
    where = ", ".join(f"{name} {i}" for name, i in zip(names, at, strict=False))
    raise NotFiniteError(f"{what}: {value} in {where}: expected finite numbers")
