"""LSTM cells with peepholes, and the nonlinear part of GRU cells, forward and backward.

LSTM (Kaldi's cu-math.cc, ComputeLstmNonlinearity):

    i = sigmoid(x_i + w_i c'),  f = sigmoid(x_f + w_f c'),  g = tanh(x_g),  c = f c' + i g,
    o = sigmoid(x_o + w_o c),   h = tanh(c),                m = o h

with c' the cell before. If the input has three columns more than 5 C, these scale i, f and o
(dropout, one number for each row).

GRU (Kaldi's nnet-combined-component.h, GruNonlinearity- and OutputGruNonlinearityComponent):

    h = tanh(a),  c = (1 - z) h + z c'

with z the update gate and c' the cell before. The shape of the weights decides the kind of cell:

    w_h (C, R)   a = x_h + w_h (r s')   x = [z, r, x_h, c', s'], without s' where R = C: it is c'
    w_h (C,)     a = x_h + w_h c'       x = [z, x_h, c'], the output-gated kind

Here r is the reset gate and s' the (projected) output before. Products with a matrix are matrix
products, all others are elementwise. The gates z and r are values after the sigmoid.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from nnet3tools.tensor.arrays import Array, empty
from nnet3tools.tensor.basics import copy, fill, prod
from nnet3tools.tensor.call import Call, operator_of_formulas
from nnet3tools.tensor.element import Element, element

_READ = "x_i x_f x_g x_o before w_i w_f w_o"
_CELL = (
    "i = sigmoid(x_i + w_i * before){by_i}; f = sigmoid(x_f + w_f * before){by_f};"
    "c = f * before + i * tanh(x_g);"
    "m = sigmoid(x_o + w_o * c){by_o} * tanh(c)"
)
_VALUES = (
    "i = sigmoid(x_i + w_i * before); f = sigmoid(x_f + w_f * before); g = tanh(x_g);"
    "c = f{by_f} * before + i{by_i} * g; o = sigmoid(x_o + w_o * c); h = tanh(c);"
)
_DERIVS = (
    "dm = at_m{by_o};"
    "d_o = o * (1 - o) * (h * dm) - (2 * o - 1) * repair_o;"
    "dc = (1 - h * h) * (o * dm) + at_c + d_o * w_o - h * repair_h;"
    "d_i = dc * g{by_i} * i * (1 - i) - (2 * i - 1) * repair_i;"
    "d_f = dc * before{by_f} * f * (1 - f) - (2 * f - 1) * repair_f;"
    "d_g = (1 - g * g) * (i * dc{by_i}) - g * repair_g;"
)
_GATES = "ifgoh"
_RESULTS: dict[str, dict[str, str]] = {
    "in_deriv": {
        "at_i": "d_i", "at_f": "d_f", "at_g": "d_g", "at_o": "d_o",
        "at_before": "w_i * d_i + w_f * d_f + f * dc{by_f}",
    },
    "params_deriv": {
        "p_i": "col_sum(d_i * before)", "p_f": "col_sum(d_f * before)", "p_o": "col_sum(d_o * c)",
    },
    "params_sum": {
        "p_i": "p_i + col_sum(d_i * before)", "p_f": "p_f + col_sum(d_f * before)",
        "p_o": "p_o + col_sum(d_o * c)",
    },
    "value_sum": {f"v_{k}": f"v_{k} + col_sum({k})" for k in _GATES},
    "deriv_sum": {
        f"s_{k}": f"s_{k} + col_sum({f'1 - {k} * {k}' if k in 'gh' else f'{k} * (1 - {k})'})"
        for k in _GATES
    },
}  # fmt: skip
"""For each result of the backward pass, its parts and their values."""


def _with_scales(text: str, dropout: bool) -> str:
    return text.format(**{f"by_{k}": f" * scale_{k}" if dropout else "" for k in "ifo"})


@functools.cache
def _lstm(dropout: bool) -> Element:
    scales = " scale_i scale_f scale_o" * dropout
    return element(_with_scales(_CELL, dropout), f"c m {_READ}{scales}")


@functools.cache
def _lstm_derivatives(dropout: bool, results: tuple[str, ...]) -> Element:
    """The formula of LSTM cells' backward pass for `results` (_RESULTS); `dropout`: with scales."""
    parts = {name: value for result in results for name, value in _RESULTS[result].items()}
    assigned = "; ".join(f"{name} = {value}" for name, value in parts.items())
    read = f"{_READ} at_c at_m repair_i repair_f repair_g repair_o repair_h"
    scales = " scale_i scale_f scale_o" * dropout
    formula = _with_scales(f"{_VALUES}{_DERIVS}{assigned}", dropout)
    return element(formula, f"{' '.join(parts)} {read}{scales}")


def _lstm_parts(x: Array, dim: int) -> list[Array]:
    """Views of an LSTM input: five blocks of `dim` columns, and the columns of scales, if any."""
    blocks = [x[:, k * dim : (k + 1) * dim] for k in range(5)]
    return blocks + [x[:, k : k + 1] for k in range(5 * dim, x.shape[1])]


@operator_of_formulas()
def lstm_nonlinearity(out: Array, x: Array, params: Array) -> Iterator[Call]:
    """Set out (rows, 2 C) to [c, m], cell and output of LSTM cells with input rows x.

    x (rows, 5 C or 5 C + 3): the inputs of i, f, g, o, the cell before, scales of i, f, o if any;
    params (3, C): the peephole weights of i, f, o. The decorator runs the yielded Calls.
    """
    dim = params.shape[1]
    parts = _lstm_parts(x, dim)
    formula = _lstm(len(parts) > 5)
    yield Call.of(formula, out[:, :dim], out[:, dim:], *parts[:5], *params, *parts[5:])


@operator_of_formulas(writes=tuple(_RESULTS))
def lstm_nonlinearity_backprop(
    x: Array,
    params: Array,
    out_deriv: Array,
    repair: Array,
    in_deriv: Array | None = None,
    params_deriv: Array | None = None,
    value_sum: Array | None = None,
    deriv_sum: Array | None = None,
    params_sum: Array | None = None,
) -> Iterator[Call]:
    """Compute the derivatives of LSTM cells; out_deriv (rows, 2 C) is that by their output [c, m].

    Set `in_deriv` (as x; 0 for the scales) and `params_deriv` (3, C), or add the latter's value to
    `params_sum` instead. Add the sums over the rows of i, f, g, o, h to `value_sum` and of the
    derivatives of these functions to `deriv_sum` (5, C). The rows of `repair` (5, C) pull saturated
    units of i, f, g, o, h back: -repair * (2 i - 1) is added at the argument of sigmoid i, -repair
    * h at that of tanh h. The decorator runs the yielded Calls.
    """
    dim = params.shape[1]
    parts = _lstm_parts(x, dim)
    given = {
        "in_deriv": None if in_deriv is None else _lstm_parts(in_deriv, dim)[:5],
        "params_deriv": params_deriv, "params_sum": params_sum,
        "value_sum": value_sum, "deriv_sum": deriv_sum,
    }  # fmt: skip
    results = {name: rows for name, rows in given.items() if rows is not None}
    if results:
        read = [*parts[:5], *params, out_deriv[:, :dim], out_deriv[:, dim:], *repair, *parts[5:]]
        written = [row for rows in results.values() for row in rows]
        yield Call.of(_lstm_derivatives(len(parts) > 5, tuple(results)), *written, *read)
    if in_deriv is not None and in_deriv.shape[1] > 5 * dim:
        yield Call.of(fill, in_deriv[:, 5 * dim :], 0.0)


class GruParts(NamedTuple):
    """Views of the columns of a GRU cell's input, or of its derivative.

    `update` is the gate z, `argument` the term x_h in the argument of tanh, `cell` the cell c'
    before, all (rows, C). `reset` is the gate r, `state` the output s' before (the cell itself
    if R = C), both (rows, R), without columns for the output-gated kind.
    """

    update: Array
    argument: Array
    cell: Array
    reset: Array
    state: Array


def gru_parts(x: Array, w_h: Array) -> GruParts:
    """The parts of a GRU cell's input x; their widths follow from the recurrent weights w_h."""
    dim, recurrent = w_h.shape[0], w_h.shape[1] if w_h.ndim == 2 else 0
    cell = 2 * dim + recurrent
    state = cell if recurrent == dim else cell + dim
    starts = (0, dim), (dim + recurrent, dim), (cell, dim), (dim, recurrent), (state, recurrent)
    return GruParts(*(x[:, start : start + width] for start, width in starts))


_multiply = element("_1 = _2 * _3")
_add_product = element("_1 += _2 * _3")
_finish_gru = element("h = tanh(h); c = (1 - z) * h + z * before", "h c z before")
_output_gated = element(
    "h = tanh(x_h + before * w_h); c = (1 - z) * h + z * before", "h c x_h before w_h z"
)

# derivatives: at the argument of h, then at z, at the cell before and at x_h
_AT_ARGUMENT = "at_a = (at_h + at_c * (1 - z)) * (1 - h * h) - h * repair"
_GRU_OPERANDS = "at_a at_h at_c z h repair"
_argument_deriv = element(_AT_ARGUMENT, _GRU_OPERANDS)
_gru_derivs = element(
    f"{_AT_ARGUMENT}; at_z += at_c * (before - h); at_before += at_c * z; at_x += at_a",
    f"{_GRU_OPERANDS} at_z at_before at_x before",
)
_output_gated_derivs = element(
    f"{_AT_ARGUMENT}; at_z += at_c * (before - h);"
    "at_before = at_before + at_c * z + at_a * w_h; at_x += at_a",
    f"{_GRU_OPERANDS} at_z at_before at_x before w_h",
)


@operator_of_formulas()
def gru_nonlinearity(out: Array, x: Array, w_h: Array) -> Iterator[Call]:
    """Set out (rows, 2 C) to [h, c], output and cell of GRU cells; the decorator runs the Calls.

    x has the columns of GruParts; w_h, (C, R) or (C,), are the recurrent weights.
    """
    dim, parts = len(w_h), gru_parts(x, w_h)
    h, c = out[:, :dim], out[:, dim:]
    if w_h.ndim == 1:
        yield Call.of(_output_gated, h, c, parts.argument, parts.cell, w_h, parts.update)
        return
    gated = empty(parts.reset.shape, like=x)
    yield Call.of(copy, h, parts.argument)
    yield Call.of(_multiply, gated, parts.reset, parts.state)
    yield Call.of(prod, h, gated, w_h, trans_b=True, beta=1.0)
    yield Call.of(_finish_gru, h, c, parts.update, parts.cell)


@operator_of_formulas(writes=("argument_deriv", "in_deriv"))
def gru_nonlinearity_backprop(
    x: Array,
    w_h: Array,
    out_value: Array,
    out_deriv: Array,
    argument_deriv: Array,
    in_deriv: Array | None = None,
    repair: Array | None = None,
) -> Iterator[Call]:
    """Set argument_deriv (rows, C), and add the derivative of GRU cells by their input to in_deriv.

    argument_deriv is the derivative at the argument of tanh. The derivative by w_h (C, R) is
    argument_deriv^T (reset * state) or, by w_h (C,), the column sums of argument_deriv * cell (see
    GruParts). x and w_h are those of gru_nonlinearity, out_value is its result [h, c], out_deriv
    the derivative by that. `repair` (C,) pulls saturated cells back: -repair * h is added to
    argument_deriv. Results must not overlap other operands. The decorator runs the yielded Calls.
    """
    dim, parts = len(w_h), gru_parts(x, w_h)
    repaired = 0.0 if repair is None else repair
    h, c_deriv = out_value[:, :dim], out_deriv[:, dim:]
    operands = (argument_deriv, out_deriv[:, :dim], c_deriv, parts.update, h, repaired)
    if in_deriv is None:
        yield Call.of(_argument_deriv, *operands)
        return
    at = gru_parts(in_deriv, w_h)
    derivs = (at.update, at.cell, at.argument)
    if w_h.ndim == 1:
        yield Call.of(_output_gated_derivs, *operands, *derivs, parts.cell, w_h)
        return
    gated = empty(parts.reset.shape, like=x)
    yield Call.of(_gru_derivs, *operands, *derivs, parts.cell)
    yield Call.of(prod, gated, argument_deriv, w_h)
    yield Call.of(_add_product, at.reset, gated, parts.state)
    yield Call.of(_add_product, at.state, gated, parts.reset)
