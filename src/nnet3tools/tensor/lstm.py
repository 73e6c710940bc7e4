"""The LSTM cell with peepholes as one operator, forward and backward.

    i = sigmoid(x_i + w_i c'),  f = sigmoid(x_f + w_f c'),  g = tanh(x_g),  c = f c' + i g,
    o = sigmoid(x_o + w_o c),   h = tanh(c),                m = o h

with c' the cell before. Where the input has three columns more than 5 C they scale i, f and o
(dropout, one number a row). Formulas: Kaldi's cu-math.cc, ComputeLstmNonlinearity.
"""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator

__all__ = ["lstm_nonlinearity", "lstm_nonlinearity_backprop"]


@operator()
def lstm_nonlinearity(out: Array, x: Array, params: Array) -> None:
    """out (rows, 2 C) = [c, m] of x (rows, 5 C or 5 C + 3) = [x_i, x_f, x_g, x_o, c'(, scales)].

    `params` (3, C) are w_i, w_f, w_o.
    """
    (_, _, _, o, h), c, scales = _values(x, params)
    out[...] = np.concatenate([c, o * scales[2] * h], axis=1)


@operator(writes=("in_deriv", "params_deriv", "value_sum", "deriv_sum"))
def lstm_nonlinearity_backprop(
    x: Array,
    params: Array,
    out_deriv: Array,
    repair: Array,
    in_deriv: Array | None = None,
    params_deriv: Array | None = None,
    value_sum: Array | None = None,
    deriv_sum: Array | None = None,
) -> None:
    """Derivatives of `lstm_nonlinearity`, computing its values again.

    Sets `in_deriv` (as x; 0 for the scales) and `params_deriv` (3, C); adds the sums over the rows
    of i, f, g, o, h to `value_sum` and of these functions' derivatives to `deriv_sum` (5, C). The
    rows of `repair` (5, C) pull saturated units of i, f, g, o, h back: -repair * (2 i - 1) and the
    like for sigmoids, -repair * h and the like for tanhs, is added at their arguments.
    """
    (i, f, g, o, h), c, (i_scale, f_scale, o_scale) = _values(x, params)
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
        sigmoids, tanhs = ([v * (1 - v) for v in (i, f, o)], [1 - v**2 for v in (g, h)])
        slopes = [*sigmoids[:2], tanhs[0], sigmoids[2], tanhs[1]]
        deriv_sum += [s.sum(0) for s in slopes]


def _values(x: Array, params: Array) -> tuple[list[np.ndarray], np.ndarray, list]:
    """i, f, g, o, h, then c, then the three scales, in float64."""
    dim, wide = params.shape[1], np.asarray(x, np.float64)
    w_i, w_f, w_o = np.asarray(params, np.float64)
    x_i, x_f, x_g, x_o, before = (wide[:, k * dim : (k + 1) * dim] for k in range(5))
    scales: list = [1.0] * 3
    if x.shape[1] > 5 * dim:
        scales = [wide[:, k : k + 1] for k in range(5 * dim, x.shape[1])]
    i, f, g = _sigmoid(x_i + w_i * before), _sigmoid(x_f + w_f * before), np.tanh(x_g)
    c = f * scales[1] * before + i * scales[0] * g
    return [i, f, g, _sigmoid(x_o + w_o * c), np.tanh(c)], c, scales


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.tanh(0.5 * x)
