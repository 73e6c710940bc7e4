"""Plain NumPy, in float64, for the operators that are declared by formulas of rows."""

import numpy as np

from nnet3tools.tensor.normalize import SQUARED_NORM_FLOOR


def softmax(out, x):
    shifted = np.exp(np.float64(x) - np.max(x, axis=-1, keepdims=True))
    out[...] = shifted / np.sum(shifted, axis=-1, keepdims=True)


def log_softmax(out, x):
    shifted = np.float64(x) - np.max(x, axis=-1, keepdims=True)
    out[...] = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))


def softmax_backprop(in_deriv, out_value, out_deriv):
    total = np.sum(np.float64(out_value) * out_deriv, axis=-1, keepdims=True)
    in_deriv[...] = out_value * (out_deriv - total)


def log_softmax_backprop(in_deriv, out_value, out_deriv):
    total = np.sum(np.float64(out_deriv), axis=-1, keepdims=True)
    in_deriv[...] = out_deriv - np.exp(np.float64(out_value)) * total


def layer_norm(out, x, scale=None, offset=None, eps=1e-9):
    value, _ = _normalised(x, eps, centred=True)
    out[...] = value * (1.0 if scale is None else scale) + (0.0 if offset is None else offset)


def rms_norm(out, x, scale=None, offset=None, eps=1e-9):
    value, _ = _normalised(x, eps, centred=False)
    out[...] = value * (1.0 if scale is None else scale) + (0.0 if offset is None else offset)


def layer_norm_backprop(
    x,
    out_deriv,
    scale=None,
    eps=1e-9,
    in_deriv=None,
    scale_deriv=None,
    offset_deriv=None,
    add=True,
):
    value, inverse = _normalised(x, eps, centred=True)
    g = np.float64(out_deriv) * (1.0 if scale is None else scale)
    inner = np.mean(g * value, axis=1, keepdims=True)
    slope = (g - np.mean(g, axis=1, keepdims=True) - value * inner) * inverse
    _add_derivs(slope, value, out_deriv, in_deriv, scale_deriv, offset_deriv, add)


def rms_norm_backprop(
    x,
    out_deriv,
    scale=None,
    eps=1e-9,
    in_deriv=None,
    scale_deriv=None,
    offset_deriv=None,
    add=True,
):
    value, inverse = _normalised(x, eps, centred=False)
    g = np.float64(out_deriv) * (1.0 if scale is None else scale)
    slope = (g - value * np.mean(g * value, axis=1, keepdims=True)) * inverse
    _add_derivs(slope, value, out_deriv, in_deriv, scale_deriv, offset_deriv, add)


def _normalised(x, eps, centred):
    value = np.asarray(x, np.float64)
    if centred:
        value = value - np.mean(value, axis=1, keepdims=True)
    inverse = 1.0 / np.sqrt(np.mean(value * value, axis=1, keepdims=True) + eps)
    return value * inverse, inverse


def _add_derivs(
    slope, value, out_deriv,
    in_deriv, scale_deriv, offset_deriv, add,
):  # fmt: skip
    if in_deriv is not None:
        in_deriv[...] = in_deriv + slope if add else slope
    if scale_deriv is not None:
        scale_deriv += np.sum(value * out_deriv, axis=0)
    if offset_deriv is not None:
        offset_deriv += np.sum(np.float64(out_deriv), axis=0)


def normalize_per_row(out, x, target_rms, add_log_stddev):
    dim = x.shape[1]
    mean_square = np.sum(np.asarray(x, np.float64) ** 2, axis=1) / (dim * target_rms**2)
    scale = np.maximum(mean_square, SQUARED_NORM_FLOOR) ** -0.5
    out[:, :dim] = x * scale[:, None]
    if add_log_stddev:
        out[:, dim] = np.log(target_rms) - np.log(scale)


def diff_normalize_per_row(in_deriv, in_value, out_deriv, target_rms, add_log_stddev):
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


def reference(operator):
    """What to compare an operator with: a function here, or else what it says itself."""
    return globals().get(operator.name) or operator.reference
