"""The nonlinear part of Kaldi's GRU cells as an operator, forward and backward.

    h = tanh(a),  c = (1 - z) h + z c'

with z the update gate and c' the cell before. The shape of the weights decides the kind of cell:

    w_h (C, R)   a = x_h + w_h (r s')   x = [z, r, x_h, c', s'], without s' where R = C: it is c'
    w_h (C,)     a = x_h + w_h c'       x = [z, x_h, c'], the output-gated kind

Here r is the reset gate and s' the (projected) output before. Products with a matrix are matrix
products, all others are elementwise. The gates z and r are values after the sigmoid. Formulas:
Kaldi's nnet-combined-component.h, GruNonlinearityComponent and OutputGruNonlinearityComponent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nnet3tools.tensor.arrays import Array, empty
from nnet3tools.tensor.basics import copy, prod
from nnet3tools.tensor.call import Call, operator_of_formulas
from nnet3tools.tensor.element import element


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
_finish = element("h = tanh(h); c = (1 - z) * h + z * before", "h c z before")
_output_gated = element(
    "h = tanh(x_h + before * w_h); c = (1 - z) * h + z * before", "h c x_h before w_h z"
)

# derivatives: at the argument of h, then at z, at the cell before and at x_h
_AT_ARGUMENT = "at_a = (at_h + at_c * (1 - z)) * (1 - h * h) - h * repair"
_OPERANDS = "at_a at_h at_c z h repair"
_argument_deriv = element(_AT_ARGUMENT, _OPERANDS)
_derivs = element(
    f"{_AT_ARGUMENT}; at_z += at_c * (before - h); at_before += at_c * z; at_x += at_a",
    f"{_OPERANDS} at_z at_before at_x before",
)
_output_gated_derivs = element(
    f"{_AT_ARGUMENT}; at_z += at_c * (before - h);"
    "at_before = at_before + at_c * z + at_a * w_h; at_x += at_a",
    f"{_OPERANDS} at_z at_before at_x before w_h",
)


@operator_of_formulas()
def gru_nonlinearity(out: Array, x: Array, w_h: Array) -> Iterator[Call]:
    """Set out (rows, 2 C) to [h, c], output and cell of GRU cells.

    x has the columns of GruParts; w_h, (C, R) or (C,), are the recurrent weights. The decorator
    runs the Calls.
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
    yield Call.of(_finish, h, c, parts.update, parts.cell)


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

    argument_deriv is the derivative at the argument of tanh. From it follows the derivative by the
    weights w_h: argument_deriv' (r s'), or the column sums of argument_deriv c'. out_value and
    out_deriv are the cells' output [h, c] and the derivative by it. `repair` (C,) pulls saturated
    cells back: -repair * h is added to argument_deriv. The results must not overlap the other
    operands. The decorator runs the yielded Calls.
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
    yield Call.of(_derivs, *operands, *derivs, parts.cell)
    yield Call.of(prod, gated, argument_deriv, w_h)
    yield Call.of(_add_product, at.reset, gated, parts.state)
    yield Call.of(_add_product, at.state, gated, parts.reset)
