"""GRU cells on CUDA: formulas around one product."""

from __future__ import annotations

from collections.abc import Callable

from nnet3tools.tensor.basics import copy, prod
from nnet3tools.tensor.cuda.device import Array, get_device
from nnet3tools.tensor.cuda.launch import in_turn
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

Step = Callable[[], None]


@implements("gru_nonlinearity", "cupy", binder=True)
def bind_gru_nonlinearity(out: Array, x: Array, w_h: Array) -> Step:
    """One formula, or formulas with a product in between."""
    columns = gru_columns(w_h)
    h, c = out[:, : columns.cell_dim], out[:, columns.cell_dim :]
    z, argument, before = columns.update_of(x), columns.argument_of(x), columns.cell_of(x)
    if not columns.recurrent_dim:
        return OUTPUT_GATED.bind(h, c, argument, before, w_h, z)
    gated = get_device().empty((len(x), columns.recurrent_dim), x.dtype)
    return in_turn(
        [
            copy.bind(h, argument),
            MULTIPLY.bind(gated, columns.reset_of(x), columns.state_of(x)),
            prod.bind(h, gated, w_h, trans_b=True, beta=1.0),
            FINISH.bind(h, c, z, before),
        ]
    )


@implements("gru_nonlinearity_backprop", "cupy", binder=True)
def bind_gru_nonlinearity_backprop(
    x: Array, w_h: Array, out_value: Array, out_deriv: Array, argument_deriv: Array,
    in_deriv: Array | None = None, repair: Array | None = None,
) -> Step:  # fmt: skip
    """One formula, or formulas with a product in between."""
    columns = gru_columns(w_h)
    dim = columns.cell_dim
    h, z, before = out_value[:, :dim], columns.update_of(x), columns.cell_of(x)
    repaired = 0.0 if repair is None else repair
    operands = (argument_deriv, out_deriv[:, :dim], out_deriv[:, dim:], z, h, repaired)
    if in_deriv is None:
        return ARGUMENT_DERIV.bind(*operands)
    derivs = (columns.update_of(in_deriv), columns.cell_of(in_deriv), columns.argument_of(in_deriv))
    if not columns.recurrent_dim:
        return OUTPUT_GATED_DERIVS.bind(*operands, *derivs, before, w_h)
    gated = get_device().empty((len(x), columns.recurrent_dim), x.dtype)
    reset, state = columns.reset_of(x), columns.state_of(x)
    return in_turn(
        [
            DERIVS.bind(*operands, *derivs, before),
            prod.bind(gated, argument_deriv, w_h),
            ADD_PRODUCT.bind(columns.reset_of(in_deriv), gated, state),
            ADD_PRODUCT.bind(columns.state_of(in_deriv), gated, reset),
        ]
    )
