"""The arithmetic of Kaldi's compressed matrices, for N matrices of one shape at a time.

The float32 arithmetic keeps Kaldi's order of operations and its mixture of float and double
(matrix/compressed-matrix.cc), so that the bytes agree. Shapes: `low` and `extent` (minimum and
range, float32) (N,); matrices (N, rows, columns); percentiles (N, columns, 4); codes of the format
CM (N, columns, rows).
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_F = np.float32
_TILE = 1 << 14
"""Elements that are processed at a time, so that intermediate arrays stay in the cache."""
_DECODED = 1 << 22
"""Elements that are decoded at a time: intermediate arrays are a few times as large."""
_LONG = 200
"""Number of rows above which a table of the values of all 256 codes, for each column, pays off."""

# CM divides the three intervals between the percentiles of a column into 64, 128 and 63 steps. For
# each code: its interval, its number of steps above the interval's start, the step's size as a
# fraction of the interval.
_INTERVAL = np.repeat(np.arange(3), [65, 128, 63])
_FIRST_CODE = np.array([0, 64, 192], np.int32)
_STEPS_ABOVE = (np.arange(256, dtype=np.int32) - _FIRST_CODE[_INTERVAL]).astype(_F)
_STEP = np.array([1 / 64.0, 1 / 128.0, 1 / 63.0])[_INTERVAL]
_NUM_STEPS = np.array([64, 128, 63], _F)


def quantize(values: NDArray, low: NDArray, extent: NDArray, steps: int) -> NDArray[np.int32]:
    """Codes 0 to `steps` for values (N, ...) from `low` (N,) to `low + extent`, as Kaldi rounds."""
    shape = (-1,) + (1,) * (values.ndim - 1)
    with np.errstate(all="ignore"):
        f = (values - low.reshape(shape)) / extent.reshape(shape)
        np.clip(f, _F(0.0), _F(1.0), out=f)
        return ((f * _F(steps)).astype(np.float64) + 0.499).astype(np.int32)


def decode_rows(codes: NDArray, low: NDArray, extent: NDArray) -> NDArray[np.float32]:
    """Decompress CM2 or CM3 codes (N, rows, columns); minima `low` and ranges `extent` are (N,)."""
    steps = 65535.0 if codes.dtype.itemsize == 2 else 255.0
    increment = (extent.astype(np.float64) * (1.0 / steps)).astype(_F)
    out = codes.astype(_F)
    with np.errstate(all="ignore"):
        out *= increment[:, None, None]
        out += low[:, None, None]
    return out


def column_percentiles(
    matrices: NDArray[np.float32], low: NDArray, extent: NDArray
) -> NDArray[np.uint16]:
    """The 0th, 25th, 75th, 100th percentile of each column as increasing codes, (N, columns, 4).

    Code 0 means `low` (N,), code 65535 `low + extent`. `matrices` are (N, rows, columns).
    """
    num, rows, cols = matrices.shape
    quarter = rows // 4
    picks = [0, quarter, 3 * quarter, rows - 1] if rows >= 5 else list(range(rows))
    # Sorting takes a tenth of the time of partitioning.
    ordered = np.sort(np.ascontiguousarray(matrices.transpose(0, 2, 1)), axis=-1)[..., picks]
    steps = quantize(ordered, low, extent, 65535)
    out = np.zeros((num, cols, 4), np.int32)
    out[..., : len(picks)] = steps
    for i in range(4):
        if i > 0:
            np.maximum(out[..., i], out[..., i - 1] + 1, out=out[..., i])
        np.minimum(out[..., i], 65532 + i, out=out[..., i])
    return out.astype(np.uint16)


def encode_columns(
    matrices: NDArray[np.float32], percentiles: NDArray, low: NDArray, extent: NDArray
) -> NDArray[np.uint8]:
    """Compress columns to bytes (N, columns, rows) of format CM, as Kaldi's FloatToChar does.

    `percentiles` (N, columns, 4) are 16-bit codes: 0 is `low` (N,), 65535 is `low + extent`.
    """
    num, rows, cols = matrices.shape
    columns = np.ascontiguousarray(matrices.transpose(0, 2, 1))
    values = _percentile_values(percentiles, low, extent)
    between = _intervals(values)
    out = np.empty((num, cols, rows), np.uint8)
    for part in _tiles(num, cols * rows):
        out[part] = _encode(columns[part], values[part], between[part])
    return out


def _encode(columns: NDArray, values: NDArray, between: NDArray) -> NDArray[np.int32]:
    middle, top = columns >= values[..., 1:2], columns >= values[..., 2:3]
    interval = middle.astype(np.intp)
    interval += top
    steps = _NUM_STEPS.take(interval)
    codes = _FIRST_CODE.take(interval)
    interval += _starts(between)[:, :, None]
    lower = between.ravel().take(interval)
    # Percentiles that are equal as floats give 0 / 0 and 1 / 0, which C++ on x86 turns into the
    # smallest integer; so does astype.
    with np.errstate(all="ignore"):
        f = columns - lower.real
        f /= lower.imag
        f *= steps
        code = (f.astype(np.float64) + 0.5).astype(np.int32)
    np.clip(code, 0, steps.astype(np.int32), out=code)
    codes += code
    return codes


def decode_columns(
    codes: NDArray[np.uint8], percentiles: NDArray[np.uint16], low: NDArray, extent: NDArray
) -> NDArray[np.float32]:
    """Decompress codes (N, columns, rows) of format CM to matrices (N, rows, columns).

    Percentiles are codes (N, columns, 4) from `low` (N,) to `low + extent`.
    """
    num, cols, rows = codes.shape
    if cols > (most := max(1, _DECODED // max(1, num * rows))):
        out = np.empty((num, rows, cols), _F)
        for first in range(0, cols, most):
            part = slice(first, first + most)
            out[..., part] = decode_columns(codes[:, part], percentiles[:, part], low, extent)
        return out
    between = _intervals(_percentile_values(percentiles, low, extent))
    if rows > _LONG:
        values = _value(between.take(_INTERVAL, axis=2), _STEPS_ABOVE, _STEP).astype(_F)
        places = codes + 256 * np.arange(num * cols, dtype=np.int32).reshape(num, cols, 1)
        return np.ascontiguousarray(values.ravel()[places].transpose(0, 2, 1))
    out = np.empty((num, rows, cols), _F)
    for part in _tiles(num, cols * rows):
        out[part] = _decode(np.ascontiguousarray(codes[part].transpose(0, 2, 1)), between[part])
    return out


def _decode(codes: NDArray[np.uint8], between: NDArray) -> NDArray[np.float64]:
    codes = codes.astype(np.intp)  # `take` would convert at each call
    interval = _INTERVAL.take(codes)
    interval += _starts(between)[:, None, :]
    lower = between.ravel().take(interval)
    return _value(lower, _STEPS_ABOVE.take(codes), _STEP.take(codes))


def _value(lower: NDArray, steps_above: NDArray, step: NDArray) -> NDArray[np.float64]:
    with np.errstate(all="ignore"):
        value = (lower.imag * steps_above) * step
        value += lower.real
    return value


def _percentile_values(
    percentiles: NDArray[np.uint16], low: NDArray, extent: NDArray
) -> NDArray[np.float32]:
    """Convert percentile codes (N, columns, 4), from `low` to `low + extent`, to float32 values."""
    with np.errstate(all="ignore"):
        increment = extent * _F(1.52590218966964e-05)
        return low[:, None, None] + increment[:, None, None] * percentiles.astype(_F)


def _intervals(values: NDArray[np.float32]) -> NDArray[np.complex64]:
    """Start + 1j * length, (N, columns, 3), of intervals between percentiles (N, columns, 4)."""
    pairs = np.empty((*values.shape[:2], 3, 2), _F)
    pairs[..., 0] = values[..., :3]
    pairs[..., 1] = values[..., 1:]
    with np.errstate(all="ignore"):
        pairs[..., 1] -= values[..., :3]
    return pairs.view(np.complex64)[..., 0]


def _starts(between: NDArray) -> NDArray[np.intp]:
    """(N, columns) flat index, in `between`, of each column's first of 3 percentile intervals."""
    num, cols = between.shape[:2]
    return (3 * np.arange(num * cols)).reshape(num, cols)


def _tiles(count: int, size: int) -> Iterator[slice]:
    """Slices of range(count), each with as many items of `size` elements as fit in the cache."""
    step = max(1, _TILE // max(size, 1))
    return (slice(start, start + step) for start in range(0, count, step))
