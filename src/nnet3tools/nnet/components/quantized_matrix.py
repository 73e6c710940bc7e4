"""Parameter matrices of integers with one scale per row, and the field that stores them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.nnet.components.field import Field
from nnet3tools.tensor.operators.integer_affine import (
    LEVELS,
    MAX_LANE_SUM,
    MAX_ROW_SUM,
    PackedWeights,
    largest_lane_sums,
)

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer

DTYPES: dict[int, np.dtype[Any]] = {8: np.dtype(np.int8), 16: np.dtype(np.int16)}
"""Bits of a weight -> type."""

_SCALE_STEP = np.float32(1.01)
"""Factor by which a row's scale grows until rounded weights satisfy the bounds of the kernels."""


@dataclass(frozen=True, eq=False)
class QuantizedMatrix:
    """A matrix that is close to scales[:, None] * values. It never changes."""

    values: NDArray
    """int8 or int16 (rows, columns), within the bounds of `integer_affine`."""
    scales: NDArray[np.float32]
    """(rows,)"""
    limits: NDArray[np.float32]
    """(2,): least and largest input value that is represented; (0,) for those of each input row."""
    _packed: dict[tuple[object, ...], PackedWeights] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, matrix: NDArray[np.float32], bits: int, limits: NDArray[np.float32]) -> Self:
        """Quantize a float matrix: the least scale for each row that satisfies all bounds."""
        dtype = DTYPES[bits]
        if not np.isfinite(matrix).all():
            raise DataError("a parameter is not finite")
        scales = np.abs(matrix).max(axis=1, initial=0.0) / np.float32(np.iinfo(dtype).max)
        scales = np.maximum(scales, _excess(matrix, dtype).astype(np.float32))
        scales[scales < np.finfo(np.float32).tiny] = 1.0
        while True:
            values = np.rint(matrix / scales[:, None])
            if not (too_large := _excess(values, dtype) > 1.0).any():
                return cls(values.astype(dtype), scales, limits)
            scales[too_large] *= _SCALE_STEP

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return self.values.shape

    @property
    def bits(self) -> int:
        """Bits of a weight."""
        return 8 * self.values.itemsize

    def dense(self) -> NDArray[np.float32]:
        """The matrix as floats."""
        return self.values * self.scales[:, None]

    def packed(self, begin: int = 0, end: int | None = None, parts: int = 1) -> PackedWeights:
        """Columns `begin` to `end` for the kernels, cut into equal parts."""
        key = begin, end, parts
        if key not in self._packed:
            self._packed[key] = PackedWeights.pack(self.values[:, begin:end], self.scales, parts)
        return self._packed[key]

    def __deepcopy__(self, memo: object) -> Self:
        return self


def _excess(values: NDArray, dtype: np.dtype) -> NDArray:
    """For each row of values, by what factor they exceed the bounds on sums; at most 1 if valid."""
    if dtype == np.int16:
        return np.abs(values).sum(axis=1, dtype=np.float64) / MAX_ROW_SUM
    sides = np.maximum(values, 0), np.maximum(-values, 0)
    return np.maximum(*map(largest_lane_sums, sides)) / MAX_LANE_SUM


class QuantizedParams(Field[QuantizedMatrix]):
    """Field for a QuantizedMatrix: bits, rows, columns, integers, scales, limits of the input."""

    TOKEN: ClassVar[str] = "<QuantizedParams>"

    def __init__(self) -> None:
        super().__init__(self.TOKEN)

    def read_value(self, reader: Reader) -> QuantizedMatrix:
        start, (bits, rows, columns) = reader.offset, (reader.read_int32() for _ in range(3))
        if bits not in DTYPES or rows < 0 or columns < 0:
            raise reader.error(f"{rows} x {columns} quantized parameters of {bits} bits", start)
        if reader.binary:
            dtype = DTYPES[bits].newbyteorder("<")
            flat = reader.read_array(rows * columns, dtype, "quantized parameters")
        else:
            flat = reader.read_int32_vector()
        values = flat.astype(DTYPES[bits])
        if flat.size != rows * columns or (values != flat).any():
            raise reader.error(f"expected {rows * columns} integers of {bits} bits", start)
        return QuantizedMatrix(
            values.reshape(rows, columns), reader.read_vector(), reader.read_vector()
        )

    def write_value(self, writer: Writer, value: QuantizedMatrix) -> None:
        for number in (value.bits, *value.shape):
            writer.write_int32(number)
        if writer.binary:
            writer.write_bytes(value.values.astype(value.values.dtype.newbyteorder("<")).tobytes())
        else:
            writer.write_int32_vector(value.values.ravel())
        writer.write_vector(value.scales)
        writer.write_vector(value.limits)

    def problem(self, value: QuantizedMatrix) -> str | None:
        if len(value.scales) != len(value.values) or value.limits.size not in (0, 2):
            return "must have one scale for each row, and two limits or none"
        if not (np.isfinite(value.scales).all() and np.isfinite(value.limits).all()):
            return "must have finite scales and limits"
        if value.limits.size and not value.limits[0] <= 0.0 <= value.limits[1]:
            return f"must have limits on both sides of 0, found {value.limits.tolist()}"
        return None

    def info(self, owner: Any) -> str:
        value: QuantizedMatrix = getattr(owner, self.name)
        levels = LEVELS[value.values.dtype] + 1
        limits = ":".join(f"{limit:g}" for limit in value.limits) or "of-each-row"
        name = self.name.replace("_", "-")
        return f"{name}=quantized:int{value.bits}, input-levels={levels}, input-limits={limits}"
