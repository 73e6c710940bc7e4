"""Row normalisation on NumPy, block of rows by block of rows."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from nnet3tools.tensor.normalize import SQUARED_NORM_FLOOR
from nnet3tools.tensor.numpy_backend.row_blocks import bind_rows, block_register
from nnet3tools.tensor.registry import implements


def _row_dots(group: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """sum(a b) of each row, (N, 1)."""
    product = block_register(group, 0, a)
    np.multiply(a, b, product)
    return np.add.reduce(product, axis=1, keepdims=True)


def _scales(square: np.ndarray, d_scaled: float) -> np.ndarray:
    """1 / root mean square over target_rms, floored."""
    floored = np.maximum(square / d_scaled, square.dtype.type(SQUARED_NORM_FLOOR))
    return 1.0 / np.sqrt(floored)


def _normalize(
    target_rms: float, add_log_stddev: bool, group: int, out: np.ndarray, x: np.ndarray
) -> None:
    dim = x.shape[1]
    scale = _scales(_row_dots(group, x, x), dim * target_rms**2)
    np.multiply(x, scale, out[:, :dim])
    if add_log_stddev:
        np.subtract(math.log(target_rms), np.log(scale), out[:, dim:])


def _diff_normalize(
    target_rms: float, add_log_stddev: bool, in_place: bool, group: int,
    in_deriv: np.ndarray, in_value: np.ndarray, out_deriv: np.ndarray,
) -> None:  # fmt: skip
    """in_deriv += f e + c x with one coefficient c a row."""
    dim = in_value.shape[1]
    e = out_deriv[:, :dim]
    square, inner = _row_dots(group, in_value, in_value), _row_dots(group, in_value, e)
    d_scaled = dim * target_rms**2
    f = _scales(square, d_scaled)
    c = np.where(square / d_scaled <= SQUARED_NORM_FLOOR, 0.0, -(f**3) * inner / d_scaled)
    if add_log_stddev:
        c = c + out_deriv[:, dim:] / np.maximum(square, dim * SQUARED_NORM_FLOOR)
    term = block_register(group, 0, in_value)
    if in_place:
        np.multiply(e, f, in_deriv)
    else:
        np.multiply(e, f, term)
        np.add(in_deriv, term, in_deriv)
    np.multiply(in_value, c.astype(in_value.dtype, copy=False), term)
    np.add(in_deriv, term, in_deriv)


@implements("normalize_per_row", "numpy", binder=True)
def bind_normalize_per_row(
    out: np.ndarray, x: np.ndarray, target_rms: float, add_log_stddev: bool
) -> Callable[[], None]:
    """Row sums of squares, one multiplication."""
    kernel = functools.partial(_normalize, float(target_rms), add_log_stddev)
    return bind_rows(kernel, 4, out, x)


@implements("diff_normalize_per_row", "numpy", binder=True)
def bind_diff_normalize_per_row(
    in_deriv: np.ndarray,
    in_value: np.ndarray,
    out_deriv: np.ndarray,
    target_rms: float,
    add_log_stddev: bool,
) -> Callable[[], None]:
    """in_deriv += f e + c x with one coefficient c a row."""
    in_place = np.may_share_memory(in_deriv, out_deriv)
    kernel = functools.partial(_diff_normalize, float(target_rms), add_log_stddev, in_place)
    return bind_rows(kernel, 8, in_deriv, in_value, out_deriv)
