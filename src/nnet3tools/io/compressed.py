"""Kaldi's lossy compressed matrices (matrix/compressed-matrix.h), bit for bit.

Three formats: CM (one byte an element between four percentiles of its column, stored by columns),
CM2 (two bytes, stored by rows) and CM3 (one byte, stored by rows).
"""

from __future__ import annotations

import enum
import struct

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError, quoted
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.io.compressed_codes import (
    column_percentiles,
    decode_columns,
    decode_rows,
    encode_columns,
    quantize,
)
from nnet3tools.io.memory import lack_of_memory
from nnet3tools.io.reader import Reader
from nnet3tools.io.writer import Writer

_TOKENS = {1: "CM", 2: "CM2", 3: "CM3"}
_F = np.float32


class CompressionMethod(enum.IntEnum):
    """How matrix elements become integer codes: Kaldi's CompressionMethod, same numbers."""

    AUTOMATIC = 1
    SPEECH_FEATURE = 2
    TWO_BYTE_AUTO = 3
    TWO_BYTE_SIGNED_INTEGER = 4
    ONE_BYTE_AUTO = 5
    ONE_BYTE_UNSIGNED_INTEGER = 6
    ONE_BYTE_ZERO_ONE = 7


_FORMATS = {2: 1, 3: 2, 4: 2, 5: 3, 6: 3, 7: 3}
_FIXED_RANGES = {4: (-32768.0, 65535.0), 6: (0.0, 255.0), 7: (0.0, 1.0)}


@dataclass(frozen=True, eq=False)
class CompressedMatrix:
    """A matrix in one of Kaldi's three compressed formats. An empty one is CM with no columns.

    `format` is 1 (CM), 2 (CM2) or 3 (CM3). `min_value` is the value of code 0; `range` is the
    largest code's value minus this. `percentiles` (columns, 4), in CM only: 0th, 25th, 75th and
    100th of each column. `data` has codes: uint8 (columns, rows) for CM, uint16 (CM2) or uint8
    (CM3) (rows, columns).
    """

    format: int
    min_value: float
    range: float
    num_rows: int
    num_cols: int
    percentiles: NDArray[np.uint16]
    data: NDArray

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and number of columns."""
        return self.num_rows, self.num_cols

    @classmethod
    def from_dense(
        cls, matrix: NDArray, method: CompressionMethod = CompressionMethod.AUTOMATIC
    ) -> CompressedMatrix:
        """Compress a matrix. DataError for infinity or NaN if the method uses minimum and range."""
        return compress_all(np.asarray(matrix, _F)[None], method)[0]

    def to_dense(self) -> NDArray[np.float32]:
        """Decompress into a C-contiguous float32 matrix; DataError if memory is too small."""
        if lack := lack_of_memory(4 * self.num_rows * self.num_cols):
            raise DataError(f"a matrix of {self.num_rows} x {self.num_cols} takes {lack}")
        low, extent = np.array([[self.min_value], [self.range]], _F)
        return decompress_all(low, extent, self.percentiles[None], self.data[None])[0]

    def scaled(self, alpha: float) -> CompressedMatrix:
        """A copy of the matrix multiplied by alpha: the header changes, the codes do not."""
        low, extent = _F(self.min_value) * _F(alpha), _F(self.range) * _F(alpha)
        return replace(self, min_value=float(low), range=float(extent))

    def row_range(self, row_offset: int, num_rows: int) -> CompressedMatrix:
        """Cut rows `row_offset` to `row_offset + num_rows` (exclusive) without decompressing them.

        Row numbers before the first or after the last row repeat that row. Fewer than 8 rows of CM
        become CM2, as in Kaldi.
        """
        if num_rows <= 0 or self.num_cols == 0:
            return _empty()
        rows = np.arange(row_offset, row_offset + num_rows).clip(0, self.num_rows - 1)
        data = self.data[:, rows] if self.format == 1 else self.data[rows]
        part = replace(self, num_rows=num_rows, data=np.ascontiguousarray(data))
        if self.format == 1 and num_rows < 8:
            return self.from_dense(part.to_dense(), CompressionMethod.TWO_BYTE_AUTO)
        return part


def _empty() -> CompressedMatrix:
    return CompressedMatrix(
        1, 0.0, 0.0, 0, 0, np.empty((0, 4), np.uint16), np.empty((0, 0), np.uint8)
    )


def compress_all(
    matrices: NDArray, method: CompressionMethod = CompressionMethod.AUTOMATIC
) -> list[CompressedMatrix]:
    """Compress each of N matrices (N, rows, columns) by `method`.

    DataError for infinity or NaN if the method uses minimum and range.
    """
    num, rows, cols = matrices.shape
    if rows == 0 or cols == 0:
        return [_empty()] * num
    form, *parts = _compressed_parts(matrices, method)
    low, extent, percentiles, data = parts
    ranges = zip(low.tolist(), extent.tolist(), percentiles, data, strict=True)
    return [CompressedMatrix(form, a, b, rows, cols, p, d) for a, b, p, d in ranges]


def compressed_bytes(matrices: NDArray) -> list[bytes]:
    """Compress N matrices (N, rows, columns) automatically; return each one's bytes in a file.

    The matrices must have at least one row and one column.
    """
    num, rows, cols = matrices.shape
    form, low, extent, percentiles, data = _compressed_parts(matrices, CompressionMethod.AUTOMATIC)
    shape = np.broadcast_to(np.array([rows, cols], "<i4"), (num, 2))
    head = np.frombuffer(_TOKENS[form].encode() + b" ", np.uint8)
    columns = [np.broadcast_to(head, (num, len(head)))]
    for part in (
        low.astype("<f4")[:, None],
        extent.astype("<f4")[:, None],
        shape,
        percentiles,
        data,
    ):
        columns.append(np.ascontiguousarray(part).reshape(num, -1).view(np.uint8))
    whole = np.concatenate(columns, axis=1)
    found: list[bytes] = whole.view(f"V{whole.shape[1]}")[:, 0].tolist()
    return found


def _compressed_parts(
    matrices: NDArray, method: CompressionMethod
) -> tuple[int, NDArray, NDArray, NDArray, NDArray]:
    """Compress N matrices; return format (1 to 3), minima, ranges, percentiles and codes of all."""
    num, rows, _ = matrices.shape
    if method == CompressionMethod.AUTOMATIC:
        method = CompressionMethod.SPEECH_FEATURE if rows > 8 else CompressionMethod.TWO_BYTE_AUTO
    low, extent = _ranges_of(matrices, method)
    form = _FORMATS[method]
    percentiles = np.empty((num, 0, 4), np.uint16)
    if form == 1:
        percentiles = column_percentiles(matrices, low, extent)
        data = encode_columns(matrices, percentiles, low, extent)
    else:
        steps, dtype = (65535, np.uint16) if form == 2 else (255, np.uint8)
        data = quantize(matrices, low, extent, steps).astype(dtype)
    return form, low, extent, percentiles, data


def decompress_all(
    low: NDArray, extent: NDArray, percentiles: NDArray, data: NDArray
) -> NDArray[np.float32]:
    """Decompress N matrices of one format; `low` and `extent` (N,) are minima and ranges.

    CM has percentiles (N, columns, 4) and codes `data` (N, columns, rows). CM2 and CM3 have no
    percentiles, (N, 0, 4), and codes (N, rows, columns).
    """
    if percentiles.shape[1] == 0:
        return decode_rows(data, low, extent)
    return decode_columns(data, percentiles, low, extent)


def _ranges_of(matrices: NDArray[np.float32], method: int) -> tuple[NDArray, NDArray]:
    """(minimum, range) with which `method` compresses each of N matrices, float32 (N,)."""
    if (fixed := _FIXED_RANGES.get(method)) is not None:
        low, extent = np.repeat(np.array(fixed, _F)[:, None], len(matrices), axis=1)
        return low, extent
    low, high = matrices.min(axis=(1, 2)), matrices.max(axis=(1, 2))
    if not (np.isfinite(low) & np.isfinite(high)).all():
        raise DataError("cannot compress a matrix that has NaNs or infinities in it")
    wide = low.astype(np.float64)
    high = np.where(high == low, (wide + (1.0 + abs(wide))).astype(_F), high)
    with np.errstate(over="ignore"):
        return low, high - low


def read_compressed(reader: Reader) -> CompressedMatrix:
    """Read a compressed matrix in the format CM, CM2 or CM3 (binary only)."""
    start = reader.offset
    token = reader.read_token()
    if (form := {name: number for number, name in _TOKENS.items()}.get(token)) is None:
        raise reader.error(
            f"expected a compressed matrix (CM, CM2, CM3), found {quoted(token)}", start
        )
    header = reader.read_array(16, np.uint8, "the header of a compressed matrix").tobytes()
    low, extent, rows, cols = struct.unpack("<ffii", header)
    if rows < 0 or cols < 0:
        raise reader.error(f"expected a compressed matrix, found one of {rows} x {cols}")
    if rows == 0 or cols == 0:
        return _empty()
    what = f"a compressed matrix of {rows} x {cols}"
    percentiles = np.empty((0, 4), np.uint16)
    if form == 1:
        percentiles = reader.read_array(4 * cols, "<u2", what).reshape(cols, 4)
    data = reader.read_array(rows * cols, "<u2" if form == 2 else np.uint8, what)
    shape = (cols, rows) if form == 1 else (rows, cols)
    return CompressedMatrix(form, low, extent, rows, cols, percentiles, data.reshape(shape))


def write_compressed(writer: Writer, matrix: CompressedMatrix) -> None:
    """Write a compressed matrix unchanged in binary mode, as numbers in text mode, like Kaldi."""
    if not writer.binary:
        writer.write_matrix(matrix.to_dense())
        return
    writer.write_bytes(bytes_of(matrix))


def bytes_of(matrix: CompressedMatrix) -> bytes:
    """The binary form of a compressed matrix in a file."""
    header = struct.pack("<ffii", matrix.min_value, matrix.range, *matrix.shape)
    token = _TOKENS[matrix.format].encode()
    return b"".join([token, b" ", header, matrix.percentiles.tobytes(), matrix.data.tobytes()])
