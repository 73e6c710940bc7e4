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

from collections.abc import Callable
from typing import NamedTuple

from nnet3tools.tensor.arrays import Array, empty
from nnet3tools.tensor.basics import copy, prod
from nnet3tools.tensor.call import in_turn
from nnet3tools.tensor.element import element
from nnet3tools.tensor.registry import operator_of_formulas

Step = Callable[[], None]


class GruColumns(NamedTuple):
    """The first column of each part of a GRU cell's input matrix.

    `state` and `cell` may be the same.
    """

    cell_dim: int
    argument: int
    cell: int
    recurrent_dim: int = 0
    """0 for the output-gated kind, which has no reset gate and no state."""
    state: int = 0

    def update_of(self, x: Array) -> Array:
        """The columns of a GRU input x that hold the update gate z."""
        return x[:, : self.cell_dim]

    def argument_of(self, x: Array) -> Array:
        """The columns of a GRU input x that are added at the argument of tanh."""
        return x[:, self.argument : self.argument + self.cell_dim]

    def cell_of(self, x: Array) -> Array:
        """The columns of a GRU input x that hold the cell of the previous step."""
        return x[:, self.cell : self.cell + self.cell_dim]

    def reset_of(self, x: Array) -> Array:
        """The columns of a GRU input x that hold the reset gate r."""
        return x[:, self.cell_dim : self.cell_dim + self.recurrent_dim]

    def state_of(self, x: Array) -> Array:
        """The columns of a GRU input x that hold the output of the previous step."""
        return x[:, self.state : self.state + self.recurrent_dim]


def gru_columns(w_h: Array) -> GruColumns:
    """The layout of a GRU cell's input; the shape of its recurrent weights w_h decides it."""
    dim = w_h.shape[0]
    if w_h.ndim == 1:
        return GruColumns(dim, dim, 2 * dim)
    recurrent = w_h.shape[1]
    cell = 2 * dim + recurrent
    return GruColumns(dim, dim + recurrent, cell, recurrent, cell + (recurrent < dim) * dim)


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
def gru_nonlinearity(out: Array, x: Array, w_h: Array) -> Step:
    """A step that sets out (rows, 2 C) to [h, c], output and cell of GRU cells with input x."""
    columns = gru_columns(w_h)
    h, c = out[:, : columns.cell_dim], out[:, columns.cell_dim :]
    z, argument, before = columns.update_of(x), columns.argument_of(x), columns.cell_of(x)
    if not columns.recurrent_dim:
        return _output_gated.bind(h, c, argument, before, w_h, z)
    gated = empty((len(x), columns.recurrent_dim), like=x)
    return in_turn(
        [
            copy.bind(h, argument),
            _multiply.bind(gated, columns.reset_of(x), columns.state_of(x)),
            prod.bind(h, gated, w_h, trans_b=True, beta=1.0),
            _finish.bind(h, c, z, before),
        ]
    )


@operator_of_formulas(writes=("argument_deriv", "in_deriv"))
def gru_nonlinearity_backprop(
    x: Array,
    w_h: Array,
    out_value: Array,
    out_deriv: Array,
    argument_deriv: Array,
    in_deriv: Array | None = None,
    repair: Array | None = None,
) -> Step:
    """A step that sets argument_deriv (rows, C) and adds to in_deriv (as x): a GRU's derivatives.

    argument_deriv is the derivative at a, the argument of tanh. The derivative by w_h follows from
    it: argument_deriv' (r s'), or the column sums of argument_deriv c'. `repair` (C,) pulls
    saturated cells back: -repair * h is added at a. The outputs must not overlap the other
    operands.
    """
    columns = gru_columns(w_h)
    dim = columns.cell_dim
    h, z, before = out_value[:, :dim], columns.update_of(x), columns.cell_of(x)
    repaired = 0.0 if repair is None else repair
    operands = (argument_deriv, out_deriv[:, :dim], out_deriv[:, dim:], z, h, repaired)
    if in_deriv is None:
        return _argument_deriv.bind(*operands)
    derivs = (columns.update_of(in_deriv), columns.cell_of(in_deriv), columns.argument_of(in_deriv))
    if not columns.recurrent_dim:
        return _output_gated_derivs.bind(*operands, *derivs, before, w_h)
    gated = empty((len(x), columns.recurrent_dim), like=x)
    return in_turn(
        [
            _derivs.bind(*operands, *derivs, before),
            prod.bind(gated, argument_deriv, w_h),
            _add_product.bind(columns.reset_of(in_deriv), gated, columns.state_of(x)),
            _add_product.bind(columns.state_of(in_deriv), gated, columns.reset_of(x)),
        ]
    )
