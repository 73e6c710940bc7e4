"""Normalisation of rows to a given root mean square, as Kaldi's NormalizeComponent has it."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator

__all__ = ["SQUARED_NORM_FLOOR", "diff_normalize_per_row", "normalize_per_row"]

SQUARED_NORM_FLOOR = 2.0**-66
"""Floor of the mean square over target_rms squared (cu-math.cc, kSquaredNormFloor)."""


@operator()
def normalize_per_row(out: Array, x: Array, target_rms: float, add_log_stddev: bool) -> None:
    """Scale each row of x (N, D) to root mean square target_rms.

    out is (N, D), or with add_log_stddev (N, D + 1), the last column log of the row's root mean
    square. Mean squares are floored as in Kaldi (cu-math.cc, NormalizePerRow). out's first D
    columns may be x.
    """
    dim = x.shape[1]
    mean_square = np.sum(np.asarray(x, np.float64) ** 2, axis=1) / (dim * target_rms**2)
    scale = np.maximum(mean_square, SQUARED_NORM_FLOOR) ** -0.5
    out[:, :dim] = x * scale[:, None]
    if add_log_stddev:
        out[:, dim] = np.log(target_rms) - np.log(scale)


@operator(writes=("in_deriv",))
def diff_normalize_per_row(
    in_deriv: Array, in_value: Array, out_deriv: Array, target_rms: float, add_log_stddev: bool
) -> None:
    """Add the derivative of normalize_per_row to in_deriv (N, D) (cu-math.cc, DiffNormalizePerRow).

    If in_deriv is (the first D columns of) out_deriv itself, the result replaces it. Rows whose
    mean square was floored get the scaled derivative only.
    """
    dim = in_value.shape[1]
    x, e = np.asarray(in_value, np.float64), np.asarray(out_deriv, np.float64)
    square = np.sum(x * x, axis=1)
    inner = np.sum(x * e[:, :dim], axis=1)
    d_scaled = dim * target_rms**2
    floored = square / d_scaled <= SQUARED_NORM_FLOOR
    f = np.maximum(square / d_scaled, SQUARED_NORM_FLOOR) ** -0.5
    coefficient = np.where(floored, 0.0, -(f**3) * inner / d_scaled)
    if add_log_stddev:
        coefficient += e[:, dim] / np.maximum(square, dim * SQUARED_NORM_FLOOR)
    value = f[:, None] * e[:, :dim] + coefficient[:, None] * x
    in_place = np.may_share_memory(in_deriv, out_deriv)
    in_deriv[...] = value if in_place else in_deriv + value
