"""GRU cells on CUDA: one kernel for all that is elementwise on either side of the product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.tensor.basics import prod
from nnet3tools.tensor.cuda.device import Array, get_device
from nnet3tools.tensor.cuda.launch import in_turn
from nnet3tools.tensor.cuda.strided import grid_step
from nnet3tools.tensor.gru import gru_columns
from nnet3tools.tensor.registry import implements

Step = Callable[[], None]

_BEFORE_PRODUCT = """
      out[[i, c]] = x[[i, argument + c]];
      if (c < recurrent_dim) gated[[i, c]] = x[[i, cell_dim + c]] * x[[i, state + c]];"""
_CELL = """
      const T h = tanh({argument}), z = x[[i, c]];
      out[[i, c]] = h;
      out[[i, cell_dim + c]] = (T(1) - z) * h + z * x[[i, cell + c]];"""
_DERIVS = """
      const T z = x[[i, c]], h = out[[i, c]], e = out_deriv[[i, cell_dim + c]];
      const T deriv = (out_deriv[[i, c]] + e * (T(1) - z)) * (T(1) - h * h){repair};
      argument_deriv[[i, c]] = deriv;"""
_INPUT_DERIVS = """
      in_deriv[[i, c]] += e * (x[[i, cell + c]] - h);
      in_deriv[[i, cell + c]] += e * z{weight};
      in_deriv[[i, argument + c]] += deriv;"""
_AFTER_PRODUCT = """
      const T deriv = gated[[i, c]], reset = x[[i, cell_dim + c]];
      in_deriv[[i, cell_dim + c]] += deriv * x[[i, state + c]];
      in_deriv[[i, state + c]] += deriv * reset;"""


def _step(
    what: str, weights: Array, columns: int, body: str, **arrays: Array | None
) -> Callable[[], Any]:
    """A thread for every row and column; the body knows where the input's parts begin."""
    given = {name: array for name, array in arrays.items() if array is not None}
    rows = next(iter(given.values())).shape[0]
    numbers: dict[str, Any] = {
        name: np.int64(at) for name, at in gru_columns(weights)._asdict().items()
    }
    return grid_step(what, {"i": rows, "c": columns}, given, body, **numbers)


@implements("gru_nonlinearity", "cupy", binder=True)
def bind_gru_nonlinearity(out: Array, x: Array, w_h: Array) -> Step:
    """One kernel, or two with a product in between."""
    dim, _, _, recurrent_dim, _ = gru_columns(w_h)
    if w_h.ndim == 1:
        body = _CELL.format(argument="x[[i, argument + c]] + w_h[[c]] * x[[i, cell + c]]")
        return _step("output_gru", w_h, dim, body, out=out, x=x, w_h=w_h)
    gated = get_device().empty((len(x), recurrent_dim), x.dtype)
    body = _CELL.format(argument="out[[i, c]]")
    return in_turn(
        [
            _step("gru_gate", w_h, dim, _BEFORE_PRODUCT, out=out, x=x, gated=gated),
            prod.bind(out[:, :dim], gated, w_h, trans_b=True, beta=1.0),
            _step("gru_cell", w_h, dim, body, out=out, x=x),
        ]
    )


@implements("gru_nonlinearity_backprop", "cupy", binder=True)
def bind_gru_nonlinearity_backprop(
    x: Array, w_h: Array, out_value: Array, out_deriv: Array, argument_deriv: Array,
    in_deriv: Array | None = None, repair: Array | None = None,
) -> Step:  # fmt: skip
    """One kernel, or two with a product in between."""
    dim, _, _, recurrent_dim, _ = gru_columns(w_h)
    weighted = w_h.ndim == 1 and in_deriv is not None
    body = _DERIVS.format(repair="" if repair is None else " - h * repair[[c]]")
    if in_deriv is not None:
        body += _INPUT_DERIVS.format(weight=" + deriv * w_h[[c]]" if weighted else "")
    first = _step(
        "gru_derivs", w_h, dim, body, argument_deriv=argument_deriv, x=x, out=out_value,
        out_deriv=out_deriv, in_deriv=in_deriv, repair=repair, w_h=w_h if weighted else None,
    )  # fmt: skip
    if in_deriv is None or w_h.ndim == 1:
        return first
    gated = get_device().empty((len(x), recurrent_dim), x.dtype)
    last = _step(
        "gru_gate_derivs", w_h, recurrent_dim, _AFTER_PRODUCT, in_deriv=in_deriv, x=x, gated=gated
    )
    return in_turn([first, prod.bind(gated, argument_deriv, w_h), last])
