"""The nonlinear part of Kaldi's GRU cells as an operator, forward and backward.

    h = tanh(a),  c = (1 - z) h + z c'

with z the update gate and c' the cell before. The weights say which kind it is:

    w_h (C, R)   a = x_h + w_h (r s')   x = [z, r, x_h, c', s'], without s' where R = C: it is c'
    w_h (C,)     a = x_h + w_h c'       x = [z, x_h, c'], the output-gated kind

r being the reset gate and s' the (projected) output before; products are elementwise but that with
a matrix. Gates come as they are, that is after their sigmoid. Formulas: Kaldi's
nnet-combined-component.h, GruNonlinearityComponent and OutputGruNonlinearityComponent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.element import element
from nnet3tools.tensor.registry import operator

__all__ = [
    "ADD_PRODUCT",
    "ARGUMENT_DERIV",
    "DERIVS",
    "FINISH",
    "MULTIPLY",
    "OUTPUT_GATED",
    "OUTPUT_GATED_DERIVS",
    "GruColumns",
    "gru_columns",
    "gru_nonlinearity",
    "gru_nonlinearity_backprop",
]


class GruColumns(NamedTuple):
    """Where the parts of a cell's input begin; `state` may be `cell`."""

    cell_dim: int
    argument: int
    cell: int
    recurrent_dim: int = 0
    """0 for the output-gated kind, which has no reset gate and no state."""
    state: int = 0

    def update_of(self, x: Array) -> Array:
        """z."""
        return x[:, : self.cell_dim]

    def argument_of(self, x: Array) -> Array:
        """x_h."""
        return x[:, self.argument : self.argument + self.cell_dim]

    def cell_of(self, x: Array) -> Array:
        """c'."""
        return x[:, self.cell : self.cell + self.cell_dim]

    def reset_of(self, x: Array) -> Array:
        """r."""
        return x[:, self.cell_dim : self.cell_dim + self.recurrent_dim]

    def state_of(self, x: Array) -> Array:
        """s'."""
        return x[:, self.state : self.state + self.recurrent_dim]


def gru_columns(w_h: Array) -> GruColumns:
    """The layout of the input of a cell with these weights."""
    dim = w_h.shape[0]
    if w_h.ndim == 1:
        return GruColumns(dim, dim, 2 * dim)
    recurrent = w_h.shape[1]
    cell = 2 * dim + recurrent
    return GruColumns(dim, dim + recurrent, cell, recurrent, cell + (recurrent < dim) * dim)


MULTIPLY = element("_1 = _2 * _3")
ADD_PRODUCT = element("_1 += _2 * _3")
FINISH = element("h = tanh(h); c = (1 - z) * h + z * before", "h c z before")
OUTPUT_GATED = element(
    "h = tanh(x_h + before * w_h); c = (1 - z) * h + z * before", "h c x_h before w_h z"
)

# derivatives: at the argument of h, then at z, at the cell before and at x_h
_AT_ARGUMENT = "at_a = (at_h + at_c * (1 - z)) * (1 - h * h) - h * repair"
_OPERANDS = "at_a at_h at_c z h repair"
ARGUMENT_DERIV = element(_AT_ARGUMENT, _OPERANDS)
DERIVS = element(
    f"{_AT_ARGUMENT}; at_z += at_c * (before - h); at_before += at_c * z; at_x += at_a",
    f"{_OPERANDS} at_z at_before at_x before",
)
OUTPUT_GATED_DERIVS = element(
    f"{_AT_ARGUMENT}; at_z += at_c * (before - h);"
    "at_before = at_before + at_c * z + at_a * w_h; at_x += at_a",
    f"{_OPERANDS} at_z at_before at_x before w_h",
)


@operator()
def gru_nonlinearity(out: Array, x: Array, w_h: Array) -> None:
    """Set out (rows, 2 C) to [h, c] of the rows of x."""
    columns, wide, w = gru_columns(w_h), np.asarray(x, np.float64), np.asarray(w_h, np.float64)
    z, before = columns.update_of(wide), columns.cell_of(wide)
    if columns.recurrent_dim:
        gated = (columns.reset_of(wide) * columns.state_of(wide)) @ w.T
    else:
        gated = before * w
    h = np.tanh(columns.argument_of(wide) + gated)
    out[...] = np.concatenate([h, (1 - z) * h + z * before], axis=1)


@operator(writes=("argument_deriv", "in_deriv"))
def gru_nonlinearity_backprop(
    x: Array,
    w_h: Array,
    out_value: Array,
    out_deriv: Array,
    argument_deriv: Array,
    in_deriv: Array | None = None,
    repair: Array | None = None,
) -> None:
    """Derivatives of `gru_nonlinearity`: sets argument_deriv (rows, C), adds to in_deriv (as x).

    argument_deriv is the derivative at a, from which those by w_h follow (argument_deriv' (r s'),
    or the sums over the rows of argument_deriv c'), with natural gradient or without. `repair` (C,)
    pulls saturated cells back: -repair * h is added at a. The outputs must not overlap the other
    operands.
    """
    columns, wide, w = gru_columns(w_h), np.asarray(x, np.float64), np.asarray(w_h, np.float64)
    dim = columns.cell_dim
    h, h_deriv, c_deriv = out_value[:, :dim], out_deriv[:, :dim], np.float64(out_deriv[:, dim:])
    z, before = columns.update_of(wide), columns.cell_of(wide)
    deriv = (h_deriv + c_deriv * (1 - z)) * (1 - np.asarray(h, np.float64) ** 2)
    if repair is not None:
        deriv -= repair * h
    argument_deriv[...] = deriv
    if in_deriv is None:
        return
    columns.update_of(in_deriv)[...] += c_deriv * (before - h)
    columns.argument_of(in_deriv)[...] += deriv
    if not columns.recurrent_dim:
        columns.cell_of(in_deriv)[...] += c_deriv * z + deriv * w
        return
    columns.cell_of(in_deriv)[...] += c_deriv * z
    gated_deriv = deriv @ w
    reset, state = columns.reset_of(wide), columns.state_of(wide)
    columns.reset_of(in_deriv)[...] += gated_deriv * state
    columns.state_of(in_deriv)[...] += gated_deriv * reset
