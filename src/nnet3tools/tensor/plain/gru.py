"""GRU cells on NumPy: formulas around one product."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import scratch
from nnet3tools.tensor.basics import copy, prod
from nnet3tools.tensor.element import element
from nnet3tools.tensor.gru import gru_columns
from nnet3tools.tensor.registry import implements

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


@implements("gru_nonlinearity", "numpy")
def gru_nonlinearity(out: np.ndarray, x: np.ndarray, w_h: np.ndarray) -> None:
    """One formula, or formula, product, formula."""
    columns = gru_columns(w_h)
    h, c = out[:, : columns.cell_dim], out[:, columns.cell_dim :]
    z, argument, before = columns.update_of(x), columns.argument_of(x), columns.cell_of(x)
    if not columns.recurrent_dim:
        _output_gated(h, c, argument, before, w_h, z)
        return
    reset, state = columns.reset_of(x), columns.state_of(x)
    copy(h, argument)
    with scratch(state.shape, like=x) as gated:
        _multiply(gated, reset, state)
        prod(h, gated, w_h, trans_b=True, beta=1.0)
    _finish(h, c, z, before)


@implements("gru_nonlinearity_backprop", "numpy")
def gru_nonlinearity_backprop(
    x: np.ndarray,
    w_h: np.ndarray,
    out_value: np.ndarray,
    out_deriv: np.ndarray,
    argument_deriv: np.ndarray,
    in_deriv: np.ndarray | None = None,
    repair: np.ndarray | None = None,
) -> None:
    """One formula, or formula, product, formulas."""
    columns = gru_columns(w_h)
    dim = columns.cell_dim
    h, z, before = out_value[:, :dim], columns.update_of(x), columns.cell_of(x)
    repaired = 0.0 if repair is None else repair
    operands = (argument_deriv, out_deriv[:, :dim], out_deriv[:, dim:], z, h, repaired)
    if in_deriv is None:
        _argument_deriv(*operands)
        return
    derivs = (columns.update_of(in_deriv), columns.cell_of(in_deriv), columns.argument_of(in_deriv))
    if not columns.recurrent_dim:
        _output_gated_derivs(*operands, *derivs, before, w_h)
        return
    _derivs(*operands, *derivs, before)
    reset, state = columns.reset_of(x), columns.state_of(x)
    with scratch(state.shape, like=x) as gated:
        prod(gated, argument_deriv, w_h)
        _add_product(columns.reset_of(in_deriv), gated, state)
        _add_product(columns.state_of(in_deriv), gated, reset)
