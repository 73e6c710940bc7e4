"""Affine maps with integer weights of quantized rows.

A row x of floats is quantized to q = round(x / step) + zero, integers from 0 to `levels`. Row o of
the weights W is close to scale[o] * V[o] with integers V. Then

    x @ W[o]  =~  step * scale[o] * (sum over k of q[k] V[o, k]  -  zero * sum over k of V[o, k])

The sums of integers are exact in int32 in any order, so that all code gives the same bytes: the
reference, plain C, AVX2, AVX-512 VNNI and NEON.

| V | levels | bound on V, so that nothing overflows |
|---|---|---|
| int8 | 180 | positive numbers of a lane add up to at most 182, negative ones to -182 |
| int16 | 4095 | absolute values of a row add up to at most (2^31 - 1) / 4095 |

A lane is the columns j + (0, 1, 4, 5) of a row, for any j.

The bound on int8 is for AVX2. vpmaddubsw gives sums of two products in int16, and saturates. The
kernel adds two such sums in int16 before it widens them: 180 * 182 = 32760. So 128 products take 10
arithmetic instructions. Widening of both factors to int16 first (vpmaddwd) takes 16 and loads twice
the bytes. More levels round inputs less and weights more. For AN4's networks the Kullback-Leibler
divergence from float posteriors is 1.0e-4 with 160, 180 or 200 levels and 1.2e-4 with 127 or 255.
With sums of four in int16 it is 1.4e-4, and 5 % of the product's time is saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.tensor.arrays import Array, aligned_bytes
from nnet3tools.tensor.registry import operator

LEVELS: dict[np.dtype[Any], int] = {np.dtype(np.int8): 180, np.dtype(np.int16): 4095}
"""Type of weights -> the largest value of a quantized row."""

_ROW_TYPES: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.int8): np.dtype(np.uint8),
    np.dtype(np.int16): np.dtype(np.int16),
}
"""Type of weights -> type of quantized rows."""

MAX_LANE_SUM = 182
"""Bound on the sum of the positive int8 weights of a lane, and of the negative ones."""

MAX_ROW_SUM = (2**31 - 1) // LEVELS[np.dtype(np.int16)]
"""Bound on the sum of the absolute values of a row of int16 weights."""

_STEP_BYTES, _PANEL = 16, 8
"""Bytes of a row that kernels multiply at a time; outputs that they compute at a time."""

_LEAST_EXTENT = 1e-30
"""Rows with a smaller range are zero."""


def excess(matrix: NDArray, dtype: np.dtype[Any]) -> NDArray:
    """(rows,) for each row of weights, its largest sum in a kernel / the bound of type `dtype`.

    If the ratio is at most 1, no sum overflows: the row may be stored as `dtype`, int8 or int16.
    """
    if dtype == np.int16:
        return np.abs(matrix).sum(axis=1, dtype=np.float64) / MAX_ROW_SUM
    return np.maximum(*(_largest_lane_sums(side) for side in (matrix, -matrix))) / MAX_LANE_SUM


def _largest_lane_sums(matrix: NDArray) -> NDArray:
    """(rows,) for each row, the largest sum of the positive numbers of a lane.

    A lane is the columns j + (0, 1, 4, 5), for any j.
    """
    sums = np.pad(np.maximum(matrix, 0), ((0, 0), (5, 5)))
    for shift in (1, 4):
        sums = sums[:, :-shift] + sums[:, shift:]
    return sums.max(axis=1)


@dataclass(frozen=True, eq=False)
class PackedWeights:
    """Integer weights in the order in which kernels read them.

    The columns are cut into equal parts, which multiply different rows of the input.
    """

    values: NDArray
    """int8 or int16 (parts, panels of 8 outputs, quads, 8, quad), padded with zeros; a quad is the
    numbers in 4 bytes of a row.
    """
    sums: NDArray[np.int32]
    """(parts, panels * 8): the sum of the weights of each output."""
    scales: NDArray[np.float32]
    """(outputs,)"""
    columns: int
    """Columns of a part."""

    @classmethod
    def pack(cls, matrix: NDArray, scales: NDArray[np.float32], parts: int = 1) -> PackedWeights:
        """Pack a matrix (outputs, parts * columns) with one scale per output."""
        columns = matrix.shape[1] // parts
        width, quad = row_width(columns, matrix.dtype), 4 // matrix.itemsize
        values = in_panels(matrix, parts, _PANEL, width, quad)
        sums = values.sum(axis=(2, 4), dtype=np.int32).reshape(parts, -1)
        return cls(values, sums, scales, columns)

    def part(self, p: int) -> NDArray:
        """Part p as a matrix (outputs, columns)."""
        matrix = self.values[p].swapaxes(1, 2).reshape(self.sums.shape[1], -1)
        return matrix[: len(self.scales), : self.columns]

    @property
    def row_type(self) -> np.dtype[Any]:
        """The type of the quantized rows that these weights multiply."""
        return _ROW_TYPES[self.values.dtype]

    @property
    def row_width(self) -> int:
        """The number of columns of a quantized row, padding included."""
        return row_width(self.columns, self.values.dtype)


def in_panels(matrix: NDArray, parts: int, panel: int, width: int, quad: int) -> NDArray:
    """A matrix (outputs, parts * columns) as (parts, panels, width / quad, panel, quad).

    Axes: part, panel of `panel` outputs, quad of `quad` columns, output in the panel, column in the
    quad. Outputs are padded with zeros to whole panels, the columns of a part to `width`.
    """
    outputs, columns = matrix.shape[0], matrix.shape[1] // parts
    panels = -(-outputs // panel)
    padded = np.zeros((panels * panel, parts, width), matrix.dtype)
    padded[:outputs, :, :columns] = matrix.reshape(outputs, parts, columns)
    ordered = padded.reshape(panels, panel, parts, width // quad, quad).transpose(2, 0, 3, 1, 4)
    found = aligned_bytes(padded.nbytes, 64)[: padded.nbytes].view(matrix.dtype)
    found = found.reshape(ordered.shape)
    found[...] = ordered
    return found


def row_width(columns: int, dtype: np.dtype) -> int:
    """Elements of a quantized row: `columns`, rounded up to whole vectors (_STEP_BYTES)."""
    step = _STEP_BYTES // dtype.itemsize
    return -(-columns // step) * step


def levels_of(rows: Array) -> int:
    """The largest value of quantized rows of the type of `rows`."""
    return LEVELS[np.dtype(np.int8 if rows.dtype == np.uint8 else np.int16)]


@operator(writes=("out", "ranges"), types=("uint8", "int16"))
def quantize_rows(out: Array, ranges: Array, src: Array, limits: Array | None = None) -> None:
    """Set `out` to the quantized rows of `src`, and `ranges` (rows, 2) to each row's (step, zero).

    A number q in `out` (rows, row_width), uint8 or int16, means step * (q - zero). `limits` (2,),
    one <= 0 and one >= 0, are the range of the numbers represented (None: each row has its own), to
    which others are clipped. A row with a number that is not finite gets the step NaN.
    """
    levels, columns = np.float32(levels_of(out)), src.shape[1]
    if limits is None:
        low, high = src.min(axis=1, initial=0.0), src.max(axis=1, initial=0.0)
    else:
        low, high = (np.full(len(src), limit, np.float32) for limit in limits)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        extent = high - low
        inverse = np.where(extent > _LEAST_EXTENT, levels / extent, np.float32(0.0))
        zero = np.rint(_clipped(-low * inverse, levels))
        ranges[:, 0] = extent / levels + (src * np.float32(0.0)).sum(axis=1)
        scaled = _clipped(src * inverse[:, None] + zero[:, None], levels)
    ranges[:, 1] = zero
    np.copyto(out[:, :columns], np.rint(scaled), casting="unsafe")
    out[:, columns:] = 0


def _clipped(values: NDArray[np.float32], levels: np.float32) -> NDArray[np.float32]:
    """The values limited to the range 0 to `levels`; 0 for NaN."""
    below = np.where(values < levels, values, levels)
    return np.where(below > 0.0, below, np.float32(0.0))


@operator(types=("float32",))
def integer_affine(
    out: Array,
    rows: Array,
    ranges: Array,
    weights: PackedWeights,
    bias: Array | None = None,
    starts: Sequence[int] = (0,),
    stride: int = 1,
    adds: bool = False,
) -> None:
    """Set `out` to an affine map of quantized rows or, with `adds`, add the map to `out`.

    `rows` and `ranges` are results of `quantize_rows`. Output row r is the sum, over parts p of
    `weights`, of the product with row starts[p] + stride * r. `bias` is (outputs,).
    """
    num_rows, num_outputs = out.shape
    total = np.zeros(out.shape, np.float32)
    for p, start in enumerate(starts):
        at = slice(start, start + stride * (num_rows - 1) + 1, stride)
        # float64 holds all of these integers exactly
        left, right = rows[at, : weights.columns], weights.part(p)
        found = np.matmul(left.astype(np.float64), right.T.astype(np.float64))
        found -= ranges[at, 1:].astype(np.float64) * weights.sums[p, :num_outputs]
        total += found.astype(np.float32) * ranges[at, :1]
    total *= weights.scales
    if bias is not None:
        total += bias
    np.copyto(out, out + total if adds else total)
