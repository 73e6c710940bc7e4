"""Parameter matrices for compiled kernels, integers with scales or floats, and their field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nnet3tools import tensor
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.components.field import Field
from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.operators.integer_affine import (
    PackedWeights,
    excess,
    integer_affine,
    quantize_rows,
)
from nnet3tools.tensor.operators.packed_affine import BATCHES, packed, packed_affine
from nnet3tools.tensor.registry import on_host

DTYPES: dict[int, np.dtype[Any]] = {
    8: np.dtype(np.int8), 16: np.dtype(np.int16), 32: np.dtype(np.float32)
}  # fmt: skip
"""Bits of a weight -> type."""

_ALL = slice(None)
_SCALE_STEP = np.float32(1.01)
"""Factor by which a row's scale grows until rounded weights satisfy the bounds of the kernels."""


@dataclass(frozen=True, eq=False)
class QuantizedMatrix:
    """A matrix that is close to scales[:, None] * values. It never changes.

    `values` (rows, columns) are int8 or int16, within the bounds of `integer_affine`, or float32;
    `scales` are (rows,), 1 for floats. `limits` (2,) are the least and largest input value that is
    represented; (0,) for those of each input row.
    """

    values: NDArray
    scales: NDArray[np.float32]
    limits: NDArray[np.float32]
    _packed: dict[tuple[object, ...], Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, matrix: NDArray[np.float32], bits: int, limits: NDArray[np.float32]) -> Self:
        """Quantize a float matrix, with the least row scales that integer_affine's bounds allow.

        32 bits: floats. `limits` are the least and the largest input; empty: found by input row.
        """
        dtype = DTYPES[bits]
        if not np.isfinite(matrix).all():
            raise DataError("a parameter is not finite")
        if dtype == np.float32:
            return cls(matrix, np.ones(len(matrix), np.float32), limits)
        scales = np.abs(matrix).max(axis=1, initial=0.0) / np.float32(np.iinfo(dtype).max)
        scales = np.maximum(scales, excess(matrix, dtype).astype(np.float32))
        scales[scales < np.finfo(np.float32).tiny] = 1.0
        while True:
            values = np.rint(matrix / scales[:, None])
            if not (too_large := excess(values, dtype) > 1.0).any():
                return cls(values.astype(dtype), scales, limits)
            scales[too_large] *= _SCALE_STEP

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return self.values.shape

    def dense(self) -> NDArray[np.float32]:
        """The matrix as floats."""
        return self.values * self.scales[:, None]

    def multiply(
        self,
        out: Array,
        rows: Array,
        bias: Array | None = None,
        starts: Sequence[int] = (0,),
        stride: int = 1,
        *,
        columns: slice = _ALL,
        adds: bool = False,
    ) -> None:
        """Set `out` to the product of `rows` with `columns` of this matrix, transposed.

        `rows` are floats; if the matrix has integers, they are quantized first. `columns` are cut
        into equal parts, one for each of `starts`. Output row r is `bias` plus the sum of part p
        times row starts[p] + stride * r. With `adds`, the result is added to `out`.
        """
        if self.values.dtype == np.float32:
            self._multiply_floats(out, rows, bias, starts, stride, columns, adds)
            return
        weights = self._in_order(columns, len(starts))
        with (
            tensor.scratch((len(rows), weights.row_width), rows, weights.row_type) as quantized,
            tensor.scratch((len(rows), 2), like=rows) as ranges,
        ):
            quantize_rows(quantized, ranges, rows, self.limits if self.limits.size else None)
            integer_affine(out, quantized, ranges, weights, bias, starts, stride, adds)

    def _in_order(self, columns: slice, parts: int) -> Any:
        """`columns` of the matrix, packed for a kernel in `parts` equal parts; kept for later."""
        key, values = (columns.start, columns.stop, parts), self.values[:, columns]
        if key not in self._packed:
            is_float = values.dtype == np.float32
            self._packed[key] = (
                packed(values, parts)
                if is_float
                else PackedWeights.pack(values, self.scales, parts)
            )
        return self._packed[key]

    def _multiply_floats(
        self, out: Array, rows: Array, bias: Array | None, starts: Sequence[int], stride: int,
        columns: slice, adds: bool,
    ) -> None:  # fmt: skip
        """Do as `multiply`, for float weights, by the kernel for few rows or by BLAS."""
        if len(out) in BATCHES or not on_host(out):
            weights = self._in_order(columns, len(starts))
            packed_affine(out, rows, weights, bias, starts, stride, adds)
            return
        if not adds:
            tensor.copy(out, 0.0 if bias is None else bias)
        elif bias is not None:
            tensor.add(out, bias)
        parts = np.split(self.values[:, columns], len(starts), axis=1)
        for start, part in zip(starts, parts, strict=True):
            at = slice(start, start + stride * (len(out) - 1) + 1, stride)
            tensor.prod(out, rows[at], part, trans_b=True, beta=1.0)

    def __deepcopy__(self, memo: object) -> Self:
        return self


class PackedParams(Field[Any]):
    """Field for a QuantizedMatrix, stored as bits, rows, columns, values, scales and limits."""

    def __init__(self) -> None:
        super().__init__("<PackedParams>")

    def read_value(self, reader: Reader) -> QuantizedMatrix:
        start, (bits, rows, columns) = reader.offset, (reader.read_int32() for _ in range(3))
        if bits not in DTYPES or rows < 0 or columns < 0:
            raise reader.error(f"{rows} x {columns} packed parameters of {bits} bits", start)
        if reader.binary:
            dtype = DTYPES[bits].newbyteorder("<")
            flat = reader.read_array(rows * columns, dtype, "packed parameters")
        else:
            flat = reader.read_vector() if bits == 32 else reader.read_int32_vector()
        values = flat.astype(DTYPES[bits])
        if flat.size != rows * columns or (values != flat).any():
            raise reader.error(f"expected {rows * columns} numbers of {bits} bits", start)
        vectors = reader.read_vector(), reader.read_vector()
        return QuantizedMatrix(values.reshape(rows, columns), *vectors)

    def write_value(self, writer: Writer, value: QuantizedMatrix) -> None:
        for number in (8 * value.values.itemsize, *value.shape):
            writer.write_int32(number)
        if writer.binary:
            writer.write_bytes(value.values.astype(value.values.dtype.newbyteorder("<")).tobytes())
        elif value.values.dtype == np.float32:
            writer.write_vector(value.values.ravel())
        else:
            writer.write_int32_vector(value.values.ravel())
        writer.write_vector(value.scales)
        writer.write_vector(value.limits)

    def problem(self, value: QuantizedMatrix) -> str | None:
        if len(value.scales) != len(value.values) or value.limits.size not in (0, 2):
            return "must have one scale for each row, and two limits or none"
        if not (np.isfinite(value.scales).all() and np.isfinite(value.limits).all()):
            return "must have finite scales and limits"
        if value.values.dtype == np.float32 and (value.scales != 1.0).any():
            return "must have the scale 1 for float weights"
        if value.limits.size and not value.limits[0] <= 0.0 <= value.limits[1]:
            return f"must have limits on both sides of 0, found {value.limits.tolist()}"
        return None

    def text(self, value: QuantizedMatrix) -> str:
        if value.values.dtype == np.float32:
            return "packed:float32"
        limits = ":".join(f"{limit:g}" for limit in value.limits) or "of-each-row"
        return f"quantized:{value.values.dtype}, input-limits={limits}"

    def info(self, owner: Any) -> str:
        return f"{self.name.replace('_', '-')}={self.text(getattr(owner, self.name))}"
