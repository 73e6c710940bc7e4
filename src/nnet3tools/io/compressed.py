"""Kaldi's lossy compressed matrices (matrix/compressed-matrix.h), bit for bit.

Three formats: CM (one byte an element between four percentiles of its column, stored by columns),
CM2 (two bytes, stored by rows) and CM3 (one byte, stored by rows). The float32 arithmetic below
keeps Kaldi's order of operations and its mixture of float and double, so that the bytes agree.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError, ProgramError, quoted

if TYPE_CHECKING:
    from nnet3tools.io.reader import Reader
    from nnet3tools.io.writer import Writer

__all__ = ["CompressedMatrix", "CompressionMethod", "read_compressed", "write_compressed"]

_TOKENS = {1: "CM", 2: "CM2", 3: "CM3"}
_F = np.float32


class CompressionMethod(enum.IntEnum):
    """Kaldi's CompressionMethod, same numbers."""

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
    """A compressed matrix; one of 0 x 0 is CM with no columns."""

    format: int
    """1 (CM), 2 (CM2) or 3 (CM3)."""
    min_value: float
    range: float
    num_rows: int
    num_cols: int
    percentiles: NDArray[np.uint16]
    """(columns, 4): the 0th, 25th, 75th and 100th percentile of each column; CM only."""
    data: NDArray
    """uint8 (columns, rows) for CM; uint16 for CM2 and uint8 for CM3, (rows, columns)."""

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.num_rows, self.num_cols

    @classmethod
    def from_dense(
        cls, matrix: NDArray, method: CompressionMethod = CompressionMethod.AUTOMATIC
    ) -> CompressedMatrix:
        """Compress; DataError for infinities or NaNs where the method needs the range."""
        matrix = np.asarray(matrix, _F)
        rows, cols = matrix.shape
        if rows == 0 or cols == 0:
            return _empty()
        if method == CompressionMethod.AUTOMATIC:
            method = (
                CompressionMethod.SPEECH_FEATURE if rows > 8 else CompressionMethod.TWO_BYTE_AUTO
            )
        low, extent = _range_of(matrix, method)
        form = _FORMATS[method]
        percentiles = np.empty((0, 4), np.uint16)
        if form == 1:
            percentiles = _column_percentiles(matrix, low, extent)
            data = _encode_columns(matrix, _percentile_values(percentiles, low, extent))
        else:
            steps, dtype = (65535, np.uint16) if form == 2 else (255, np.uint8)
            data = _quantize(matrix, low, extent, steps).astype(dtype)
        return cls(form, float(low), float(extent), rows, cols, percentiles, data)

    def to_dense(self) -> NDArray[np.float32]:
        """The matrix it stands for, float32, C-contiguous."""
        low, extent = _F(self.min_value), _F(self.range)
        if self.format == 1:
            values = _percentile_values(self.percentiles, low, extent)
            return np.ascontiguousarray(_decode_columns(self.data, values).T)
        increment = _F(float(extent) * (1.0 / (65535.0 if self.format == 2 else 255.0)))
        out = self.data.astype(_F)
        out *= increment
        out += low
        return out

    def scaled(self, alpha: float) -> CompressedMatrix:
        """Times alpha: only the header changes."""
        low, extent = _F(self.min_value) * _F(alpha), _F(self.range) * _F(alpha)
        return replace(self, min_value=float(low), range=float(extent))

    def block(
        self, row_offset: int, num_rows: int, col_offset: int = 0, num_cols: int | None = None
    ) -> CompressedMatrix:
        """A range of rows and columns, not decompressed.

        Rows before the first or after the last repeat those. Fewer than 8 rows of CM become CM2,
        as in Kaldi.
        """
        num_cols = self.num_cols - col_offset if num_cols is None else num_cols
        if not (0 <= col_offset and col_offset + num_cols <= self.num_cols):
            raise ProgramError(f"columns {col_offset} + {num_cols} of {self.num_cols}")
        if num_rows <= 0 or num_cols == 0:
            return _empty()
        rows = np.arange(row_offset, row_offset + num_rows).clip(0, self.num_rows - 1)
        cols = slice(col_offset, col_offset + num_cols)
        by_columns = self.format == 1
        part = replace(
            self,
            num_rows=num_rows,
            num_cols=num_cols,
            percentiles=self.percentiles[cols] if by_columns else self.percentiles,
            data=np.ascontiguousarray(
                self.data[cols][:, rows] if by_columns else self.data[rows][:, cols]
            ),
        )
        if by_columns and num_rows < 8:
            return self.from_dense(part.to_dense(), CompressionMethod.TWO_BYTE_AUTO)
        return part

    def row_range(self, row_offset: int, num_rows: int) -> CompressedMatrix:
        """Rows `row_offset` to `row_offset + num_rows`, see `block`."""
        return self.block(row_offset, num_rows)


def _empty() -> CompressedMatrix:
    return CompressedMatrix(
        1, 0.0, 0.0, 0, 0, np.empty((0, 4), np.uint16), np.empty((0, 0), np.uint8)
    )


def _range_of(matrix: NDArray[np.float32], method: int) -> tuple[np.float32, np.float32]:
    """min_value and range of the header, both float32."""
    if (fixed := _FIXED_RANGES.get(method)) is not None:
        return _F(fixed[0]), _F(fixed[1])
    low, high = matrix.min(), matrix.max()
    if not (np.isfinite(low) and np.isfinite(high)):
        raise DataError("cannot compress a matrix that has NaNs or infinities in it")
    if high == low:
        high = _F(float(low) + (1.0 + abs(float(low))))
    return low, _F(high - low)


def _quantize(
    values: NDArray, low: np.float32, extent: np.float32, steps: int
) -> NDArray[np.int32]:
    """FloatToUint16 / FloatToUint8: 0.499 instead of 0.5 is Kaldi's."""
    with np.errstate(all="ignore"):
        f = ((values - low) / extent).clip(_F(0.0), _F(1.0))
        return ((f * _F(steps)).astype(np.float64) + 0.499).astype(np.int32)


def _column_percentiles(
    matrix: NDArray[np.float32], low: np.float32, extent: np.float32
) -> NDArray[np.uint16]:
    """(columns, 4), each column strictly increasing."""
    rows = len(matrix)
    quarter = rows // 4
    picks = [0, quarter, 3 * quarter, rows - 1] if rows >= 5 else list(range(rows))
    ordered = np.partition(matrix, picks, axis=0)[picks]
    steps = _quantize(ordered, low, extent, 65535)
    out = np.empty((matrix.shape[1], 4), np.int32)
    for i in range(4):
        out[:, i] = steps[i] if i < len(picks) else 0
        if i > 0:
            np.maximum(out[:, i], out[:, i - 1] + 1, out=out[:, i])
        np.minimum(out[:, i], 65532 + i, out=out[:, i])
    return out.astype(np.uint16)


def _percentile_values(
    percentiles: NDArray[np.uint16], low: np.float32, extent: np.float32
) -> NDArray[np.float32]:
    """Uint16ToFloat, shape (columns, 4); all in float32."""
    return low + (extent * _F(1.52590218966964e-05)) * percentiles.astype(_F)


def _encode_columns(matrix: NDArray[np.float32], values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """FloatToChar for whole columns, (columns, rows): 64, 128 and 63 steps between percentiles."""
    columns = np.ascontiguousarray(matrix.T)
    p = [values[:, i : i + 1] for i in range(4)]
    middle, top = columns >= p[1], columns >= p[2]

    def pick(low: Any, between: Any, high: Any) -> NDArray:
        return np.where(top, high, np.where(middle, between, low))

    steps = pick(_F(64), _F(128), _F(63))
    # Percentiles that are equal as floats give 0 / 0 and 1 / 0, which C++ on x86 turns into the
    # smallest integer; so does astype.
    with np.errstate(all="ignore"):
        f = (columns - pick(*p[:3])) / pick(p[1] - p[0], p[2] - p[1], p[3] - p[2])
        code = ((f * steps).astype(np.float64) + 0.5).astype(np.int32)
    code = code.clip(0, steps.astype(np.int32)) + pick(0, 64, 192)
    return code.astype(np.uint8)


def _decode_columns(data: NDArray[np.uint8], values: NDArray[np.float32]) -> NDArray[np.float32]:
    """CharToFloat for whole columns by a table of 256 values a column, (columns, rows)."""
    codes = np.arange(256, dtype=_F)[None, :]
    p = [values[:, i : i + 1] for i in range(4)]
    table = np.empty((len(values), 256), _F)
    for begin, end, i, first, scale in (
        (0, 65, 0, 0, 1 / 64.0),
        (65, 193, 1, 64, 1 / 128.0),
        (193, 256, 2, 192, 1 / 63.0),
    ):
        steps = (p[i + 1] - p[i]) * (codes[:, begin:end] - _F(first))
        table[:, begin:end] = p[i] + steps.astype(np.float64) * scale
    return table.ravel()[data + 256 * np.arange(len(table), dtype=np.int32)[:, None]]


def read_compressed(reader: Reader) -> CompressedMatrix:
    """Read CM, CM2 or CM3 (binary only)."""
    start = reader.offset
    token = reader.read_token()
    form = {name: number for number, name in _TOKENS.items()}.get(token)
    if form is None:
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
    """Write in binary, or as a full matrix in text, as Kaldi does."""
    if not writer.binary:
        writer.write_matrix(matrix.to_dense())
        return
    header = struct.pack("<ffii", matrix.min_value, matrix.range, *matrix.shape)
    writer.write_token(_TOKENS[matrix.format])
    writer.write_bytes(header + matrix.percentiles.tobytes() + matrix.data.tobytes())
