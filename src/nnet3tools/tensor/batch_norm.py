"""Batch normalisation: every column of a matrix to mean 0 and a given root mean square.

With N rows, m and v mean and variance of a column (Ioffe and Szegedy 2015; Kaldi's
BatchNormComponent, nnet-normalize-component.cc):

    scale = target_rms / sqrt(v + epsilon),   z = scale (x - m)
    dF/dx = scale (dF/dz - mean of dF/dz) - z scale / target_rms^2 (mean of z dF/dz)
"""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator

__all__ = ["batch_norm", "batch_norm_backprop"]


@operator(writes=("out", "stats"))
def batch_norm(out: Array, stats: Array, x: Array, epsilon: float, target_rms: float) -> None:
    """Normalise the columns of x (N, D); out (N, D) may be x.

    stats (3, D) are set to the columns' means, mean squares and scales. Variances are exact where a
    mean is much larger than the deviation from it, too.
    """
    value = np.asarray(x, np.float64)
    rows = max(1, len(value))
    mean = value.sum(axis=0) / rows
    centred = value - mean
    variance = np.square(centred).sum(axis=0) / rows
    scale = target_rms / np.sqrt(variance + epsilon)
    stats[0], stats[1], stats[2] = mean, variance + mean * mean, scale
    out[...] = centred * scale


@operator(writes=("in_deriv",))
def batch_norm_backprop(
    in_deriv: Array, out_value: Array, out_deriv: Array, scale: Array, target_rms: float
) -> None:
    """in_deriv = the derivative by x, of the output and its derivative; `scale` (D,) is stats[2].

    in_deriv may be either of the other two.
    """
    z, e = np.asarray(out_value, np.float64), np.asarray(out_deriv, np.float64)
    rows = max(1, len(z))
    inner = (z * e).sum(axis=0) / (rows * target_rms**2)
    in_deriv[...] = (e - e.sum(axis=0) / rows - z * inner) * scale
