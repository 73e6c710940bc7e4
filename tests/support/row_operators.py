"""Plain NumPy, in float64, for the operators that are declared by formulas of rows."""

import importlib
import pkgutil
from typing import NamedTuple

import numpy as np

from nnet3tools.tensor import operators
from nnet3tools.tensor.norms import SQUARED_NORM_FLOOR
from nnet3tools.tensor.registry import OPERATORS
from support import loop_operators


def all_operators():
    """Every declared operator: each module of nnet3tools.tensor.operators is imported."""
    for module in pkgutil.iter_modules(operators.__path__, f"{operators.__name__}."):
        importlib.import_module(module.name)
    return list(OPERATORS.values())


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


def layer_norm(out, x, scale=None, offset=None, eps=1e-9, centred=True):
    value, _ = _normalised(x, eps, centred)
    out[...] = value * (1.0 if scale is None else scale) + (0.0 if offset is None else offset)


def layer_norm_backprop(
    x, out_deriv, scale=None, eps=1e-9, in_deriv=None, scale_deriv=None, offset_deriv=None,
    add=True, centred=True,
):  # fmt: skip
    value, inverse = _normalised(x, eps, centred)
    g = np.float64(out_deriv) * (1.0 if scale is None else scale)
    mean = np.mean(g, axis=1, keepdims=True) if centred else 0.0
    slope = (g - mean - value * np.mean(g * value, axis=1, keepdims=True)) * inverse
    if in_deriv is not None:
        in_deriv[...] = in_deriv + slope if add else slope
    if scale_deriv is not None:
        scale_deriv += np.sum(value * out_deriv, axis=0)
    if offset_deriv is not None:
        offset_deriv += np.sum(np.float64(out_deriv), axis=0)


def _normalised(x, eps, centred):
    value = np.asarray(x, np.float64)
    if centred:
        value = value - np.mean(value, axis=1, keepdims=True)
    inverse = 1.0 / np.sqrt(np.mean(value * value, axis=1, keepdims=True) + eps)
    return value * inverse, inverse


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


def batch_norm(out, stats, x, epsilon, target_rms):
    """Columns of mean 0 and a given root mean square, in float64."""
    value, rows = np.asarray(x, np.float64), max(1, len(x))
    mean = value.sum(axis=0) / rows
    variance = np.square(value - mean).sum(axis=0) / rows
    scale = target_rms / np.sqrt(variance + epsilon)
    stats[0], stats[1], stats[2] = mean, variance + mean * mean, scale
    out[...] = (value - mean) * scale


def batch_norm_backprop(in_deriv, out_value, out_deriv, scale, target_rms):
    """The derivative of batch_norm by its input, in float64."""
    z, e = np.asarray(out_value, np.float64), np.asarray(out_deriv, np.float64)
    rows = max(1, len(z))
    inner = (z * e).sum(axis=0) / (rows * target_rms**2)
    in_deriv[...] = (e - e.sum(axis=0) / rows - z * inner) * scale


def _sigmoid(x):
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def _lstm_values(x, params):
    """The values i, f, g, o, h, the cell, and the scales of i, f and o."""
    wide, dim = np.asarray(x, np.float64), params.shape[1]
    w_i, w_f, w_o = np.asarray(params, np.float64)
    x_i, x_f, x_g, x_o, before = (wide[:, k * dim : (k + 1) * dim] for k in range(5))
    scales = [1.0] * 3
    if x.shape[1] > 5 * dim:
        scales = [wide[:, k : k + 1] for k in range(5 * dim, x.shape[1])]
    i, f, g = _sigmoid(x_i + w_i * before), _sigmoid(x_f + w_f * before), np.tanh(x_g)
    c = f * scales[1] * before + i * scales[0] * g
    return [i, f, g, _sigmoid(x_o + w_o * c), np.tanh(c)], c, scales


def lstm_nonlinearity(out, x, params):
    """[c, m] of the LSTM cell, in float64."""
    (_, _, _, o, h), c, scales = _lstm_values(x, params)
    out[...] = np.concatenate([c, o * scales[2] * h], axis=1)


def lstm_nonlinearity_backprop(
    x, params, out_deriv, repair, in_deriv=None, params_deriv=None, value_sum=None, deriv_sum=None
):
    """The derivatives of the LSTM cell, in float64."""
    (i, f, g, o, h), c, (i_scale, f_scale, o_scale) = _lstm_values(x, params)
    dim, pull = params.shape[1], np.asarray(repair, np.float64)
    w_i, w_f, w_o = np.asarray(params, np.float64)
    before, c_deriv = np.float64(x[:, 4 * dim : 5 * dim]), np.float64(out_deriv[:, :dim])
    m_deriv = o_scale * out_deriv[:, dim:]
    at_o = o * (1 - o) * h * m_deriv - (2 * o - 1) * pull[3]
    dc = (1 - h**2) * o * m_deriv + c_deriv + at_o * w_o - h * pull[4]
    at_i = dc * g * i_scale * i * (1 - i) - (2 * i - 1) * pull[0]
    at_f = dc * before * f_scale * f * (1 - f) - (2 * f - 1) * pull[1]
    at_g = (1 - g**2) * i * dc * i_scale - g * pull[2]
    if in_deriv is not None:
        in_deriv[:, 5 * dim :] = 0
        at_cell = w_i * at_i + w_f * at_f + f * f_scale * dc
        in_deriv[:, : 5 * dim] = np.concatenate([at_i, at_f, at_g, at_o, at_cell], axis=1)
    if params_deriv is not None:
        params_deriv[...] = [(at_i * before).sum(0), (at_f * before).sum(0), (at_o * c).sum(0)]
    if value_sum is not None:
        value_sum += [v.sum(0) for v in (i, f, g, o, h)]
    if deriv_sum is not None:
        slopes = [v * (1 - v) for v in (i, f)] + [1 - g**2, o * (1 - o), 1 - h**2]
        deriv_sum += [v.sum(0) for v in slopes]


class _GruInput(NamedTuple):
    update: np.ndarray
    reset: np.ndarray
    argument: np.ndarray
    cell: np.ndarray
    state: np.ndarray


def _gru_split(x, w):
    """Views of the parts of a GRU cell's input, one after the other."""
    dim, recurrent = len(w), w.shape[1] if w.ndim == 2 else 0
    sizes = [dim, recurrent, dim, dim] + [recurrent] * (recurrent < dim)
    parts = np.split(x, np.cumsum(sizes)[:-1], axis=1)
    return _GruInput(*parts[:4], parts[-1])


def gru_nonlinearity(out, x, w_h):
    """[h, c] of GRU cells, in float64."""
    parts, w = _gru_split(np.asarray(x, np.float64), w_h), np.asarray(w_h, np.float64)
    gated = (parts.reset * parts.state) @ w.T if w.ndim == 2 else parts.cell * w
    h = np.tanh(parts.argument + gated)
    out[...] = np.concatenate([h, (1 - parts.update) * h + parts.update * parts.cell], axis=1)


def gru_nonlinearity_backprop(
    x, w_h, out_value, out_deriv, argument_deriv, in_deriv=None, repair=None
):
    """The derivatives of GRU cells, in float64."""
    parts, w = _gru_split(np.asarray(x, np.float64), w_h), np.asarray(w_h, np.float64)
    dim, z = len(w), parts.update
    h, h_deriv, c_deriv = out_value[:, :dim], out_deriv[:, :dim], np.float64(out_deriv[:, dim:])
    deriv = (h_deriv + c_deriv * (1 - z)) * (1 - np.asarray(h, np.float64) ** 2)
    if repair is not None:
        deriv -= repair * h
    argument_deriv[...] = deriv
    if in_deriv is None:
        return
    at = _gru_split(in_deriv, w_h)
    at.update[...] += c_deriv * (parts.cell - h)
    at.argument[...] += deriv
    at.cell[...] += c_deriv * z + (deriv * w if w.ndim == 1 else 0.0)
    if w.ndim == 2:
        at.reset[...] += deriv @ w * parts.state
        at.state[...] += deriv @ w * parts.reset


def copy(out, src):
    out[...] = src


def fill(out, value):
    out[...] = value


def scale(out, alpha):
    out *= alpha


def add(out, src, alpha=1.0):
    out += alpha * np.asarray(src, np.float64)


def concatenate(out, parts, axis):
    out[...] = np.concatenate(parts, axis)


def split(src, parts, axis, adds=False):
    ends = np.cumsum([part.shape[axis] for part in parts])
    for part, section in zip(parts, np.split(src, ends, axis), strict=False):
        part[...] = part + section if adds else section


def add_split(src, parts, axis):
    split(src, parts, axis, adds=True)


def reference(operator):
    """What to compare an operator with: a function of the tests, or else its own reference."""
    own = globals().get(operator.name) or getattr(loop_operators, operator.name, None)
    return own or operator.reference
