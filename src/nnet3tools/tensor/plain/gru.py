"""GRU cells on NumPy: formulas around one product."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import scratch
from nnet3tools.tensor.basics import copy, prod
from nnet3tools.tensor.gru import (
    ADD_PRODUCT,
    ARGUMENT_DERIV,
    DERIVS,
    FINISH,
    MULTIPLY,
    OUTPUT_GATED,
    OUTPUT_GATED_DERIVS,
    gru_columns,
)
from nnet3tools.tensor.registry import implements


@implements("gru_nonlinearity", "numpy")
def gru_nonlinearity(out: np.ndarray, x: np.ndarray, w_h: np.ndarray) -> None:
    """One formula, or formula, product, formula."""
    columns = gru_columns(w_h)
    h, c = out[:, : columns.cell_dim], out[:, columns.cell_dim :]
    z, argument, before = columns.update_of(x), columns.argument_of(x), columns.cell_of(x)
    if not columns.recurrent_dim:
        OUTPUT_GATED(h, c, argument, before, w_h, z)
        return
    reset, state = columns.reset_of(x), columns.state_of(x)
    copy(h, argument)
    with scratch(state.shape, like=x) as gated:
        MULTIPLY(gated, reset, state)
        prod(h, gated, w_h, trans_b=True, beta=1.0)
    FINISH(h, c, z, before)


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
        ARGUMENT_DERIV(*operands)
        return
    derivs = (columns.update_of(in_deriv), columns.cell_of(in_deriv), columns.argument_of(in_deriv))
    if not columns.recurrent_dim:
        OUTPUT_GATED_DERIVS(*operands, *derivs, before, w_h)
        return
    DERIVS(*operands, *derivs, before)
    reset, state = columns.reset_of(x), columns.state_of(x)
    with scratch(state.shape, like=x) as gated:
        prod(gated, argument_deriv, w_h)
        ADD_PRODUCT(columns.reset_of(in_deriv), gated, state)
        ADD_PRODUCT(columns.state_of(in_deriv), gated, reset)
