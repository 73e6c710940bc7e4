"""Row normalisation on NumPy."""

from __future__ import annotations

import math

import numpy as np

from nnet3tools.tensor.normalize import SQUARED_NORM_FLOOR
from nnet3tools.tensor.registry import implements


def _scales(square: np.ndarray, d_scaled: float) -> np.ndarray:
    """1 / root mean square over target_rms, floored."""
    return np.maximum(square / d_scaled, square.dtype.type(SQUARED_NORM_FLOOR)) ** -0.5


@implements("normalize_per_row", "numpy")
def normalize_per_row(
    out: np.ndarray, x: np.ndarray, target_rms: float, add_log_stddev: bool
) -> None:
    """Row sums of squares, one multiplication."""
    dim = x.shape[1]
    scale = _scales(np.einsum("ij,ij->i", x, x), dim * target_rms**2)
    np.multiply(x, scale[:, None], out=out[:, :dim])
    if add_log_stddev:
        out[:, dim] = math.log(target_rms) - np.log(scale)


@implements("diff_normalize_per_row", "numpy")
def diff_normalize_per_row(
    in_deriv: np.ndarray,
    in_value: np.ndarray,
    out_deriv: np.ndarray,
    target_rms: float,
    add_log_stddev: bool,
) -> None:
    """in_deriv += f e + c x with one coefficient c a row."""
    dim = in_value.shape[1]
    e = out_deriv[:, :dim]
    square = np.einsum("ij,ij->i", in_value, in_value)
    inner = np.einsum("ij,ij->i", in_value, e)
    d_scaled = dim * target_rms**2
    f = _scales(square, d_scaled)
    coefficient = np.where(square / d_scaled <= SQUARED_NORM_FLOOR, 0.0, -(f**3) * inner / d_scaled)
    if add_log_stddev:
        coefficient = coefficient + out_deriv[:, dim] / np.maximum(square, dim * SQUARED_NORM_FLOOR)
    if np.may_share_memory(in_deriv, out_deriv):
        np.multiply(e, f[:, None], out=in_deriv)
    else:
        np.add(in_deriv, e * f[:, None], out=in_deriv)
    np.add(in_deriv, in_value * coefficient.astype(in_value.dtype)[:, None], out=in_deriv)
