"""Layer norm (Ba et al. 2016) and RMS norm (Zhang and Sennrich 2019) of the rows of a matrix.

    layer norm:  n = (x - mean) / sqrt(variance + eps),   rms norm:  n = x / sqrt(mean square + eps)

of each row, variances divided by the number of columns D, then out = n * scale + offset, where
scale and offset (D,) may be left out.
"""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator

__all__ = ["layer_norm", "layer_norm_backprop", "rms_norm", "rms_norm_backprop"]

_DERIVS = ("in_deriv", "scale_deriv", "offset_deriv")


@operator()
def layer_norm(
    out: Array, x: Array, scale: Array | None = None, offset: Array | None = None, eps: float = 1e-9
) -> None:
    """Normalise each row of x (N, D) to mean 0 and variance 1, times scale, plus offset.

    out may be x.
    """
    value, _ = _normalised(x, eps, centred=True)
    out[...] = value * (1.0 if scale is None else scale) + (0.0 if offset is None else offset)


@operator()
def rms_norm(
    out: Array, x: Array, scale: Array | None = None, offset: Array | None = None, eps: float = 1e-9
) -> None:
    """Normalise each row of x (N, D) to mean square 1, times scale, plus offset; out may be x."""
    value, _ = _normalised(x, eps, centred=False)
    out[...] = value * (1.0 if scale is None else scale) + (0.0 if offset is None else offset)


@operator(writes=_DERIVS)
def layer_norm_backprop(
    x: Array,
    out_deriv: Array,
    scale: Array | None = None,
    eps: float = 1e-9,
    in_deriv: Array | None = None,
    scale_deriv: Array | None = None,
    offset_deriv: Array | None = None,
    add: bool = True,
) -> None:
    """Add the derivatives of `layer_norm` by x, scale and offset to those that are given.

    With e = out_deriv and g = e * scale: (g - mean of g - n * mean of g n) / sqrt(variance + eps)
    for x, the columns' sums of e n for scale, those of e for offset. Without `add`, in_deriv is
    set. The outputs must not overlap the other operands.
    """
    value, inverse = _normalised(x, eps, centred=True)
    g = np.float64(out_deriv) * (1.0 if scale is None else scale)
    inner = np.mean(g * value, axis=1, keepdims=True)
    slope = (g - np.mean(g, axis=1, keepdims=True) - value * inner) * inverse
    _add_derivs(slope, value, out_deriv, in_deriv, scale_deriv, offset_deriv, add)


@operator(writes=_DERIVS)
def rms_norm_backprop(
    x: Array,
    out_deriv: Array,
    scale: Array | None = None,
    eps: float = 1e-9,
    in_deriv: Array | None = None,
    scale_deriv: Array | None = None,
    offset_deriv: Array | None = None,
    add: bool = True,
) -> None:
    """Add the derivatives of `rms_norm`: as for `layer_norm_backprop`, without the mean of g."""
    value, inverse = _normalised(x, eps, centred=False)
    g = np.float64(out_deriv) * (1.0 if scale is None else scale)
    slope = (g - value * np.mean(g * value, axis=1, keepdims=True)) * inverse
    _add_derivs(slope, value, out_deriv, in_deriv, scale_deriv, offset_deriv, add)


def _normalised(x: Array, eps: float, centred: bool) -> tuple[np.ndarray, np.ndarray]:
    """n and 1 / sqrt(variance + eps), in float64."""
    value = np.asarray(x, np.float64)
    if centred:
        value = value - np.mean(value, axis=1, keepdims=True)
    inverse = 1.0 / np.sqrt(np.mean(value * value, axis=1, keepdims=True) + eps)
    return value * inverse, inverse


def _add_derivs(
    slope: np.ndarray, value: np.ndarray, out_deriv: Array,
    in_deriv: Array | None, scale_deriv: Array | None, offset_deriv: Array | None, add: bool,
) -> None:  # fmt: skip
    if in_deriv is not None:
        in_deriv[...] = in_deriv + slope if add else slope
    if scale_deriv is not None:
        scale_deriv += np.sum(value * out_deriv, axis=0)
    if offset_deriv is not None:
        offset_deriv += np.sum(np.float64(out_deriv), axis=0)
