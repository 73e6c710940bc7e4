"""The LSTM cell on CUDA: a thread computes a cell, forward and backward, in one kernel.

Backward, a block of threads goes down 32 columns over a slice of the rows, 8 rows at a time, and
keeps the columns' sums that parameters and statistics need; the last block of those columns adds up
the slices.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnet3tools.tensor.basics import fill
from nnet3tools.tensor.cuda.device import Array, get_device
from nnet3tools.tensor.cuda.launch import COLUMNS, LANES, slices_of
from nnet3tools.tensor.cuda.launches import zero_tickets
from nnet3tools.tensor.cuda.strided import block_step, grid_step
from nnet3tools.tensor.registry import implements

Step = Callable[[], None]

_SUMS = 13
"""Sums over the rows: 3 for the parameters, 5 of values, 5 of derivatives."""

_VALUES = """
      const T before = x[[r, 4 * dim + c]];
      const T i = nn_sigmoid(x[[r, c]] + w[[0, c]] * before);
      const T f = nn_sigmoid(x[[r, dim + c]] + w[[1, c]] * before);
      const T g = tanh(x[[r, 2 * dim + c]]);
      const T i_scale = {i_scale}, f_scale = {f_scale}, o_scale = {o_scale};
      const T cell = f * f_scale * before + i * i_scale * g;
      const T o = nn_sigmoid(x[[r, 3 * dim + c]] + w[[2, c]] * cell), h = tanh(cell);"""
_FORWARD = """
      out[[r, c]] = cell;
      out[[r, dim + c]] = o * o_scale * h;"""
_DERIVS = """
      const T dm = e[[r, dim + c]] * o_scale;
      const T at_o = o * (1 - o) * (h * dm) - (2 * o - 1) * repair[[3, c]];
      const T dc = (1 - h * h) * (o * dm) + e[[r, c]] + at_o * w[[2, c]] - h * repair[[4, c]];
      const T at_i = dc * g * i_scale * i * (1 - i) - (2 * i - 1) * repair[[0, c]];
      const T at_f = dc * before * f_scale * f * (1 - f) - (2 * f - 1) * repair[[1, c]];
      const T at_g = (1 - g * g) * (i * dc * i_scale) - g * repair[[2, c]];"""
_INPUT_DERIVS = """
      in_deriv[[r, c]] = at_i;
      in_deriv[[r, dim + c]] = at_f;
      in_deriv[[r, 2 * dim + c]] = at_g;
      in_deriv[[r, 3 * dim + c]] = at_o;
      in_deriv[[r, 4 * dim + c]] = w[[0, c]] * at_i + w[[1, c]] * at_f + f * dc * f_scale;"""
_ADD_SUMS = """
      sums[0] += at_i * before; sums[1] += at_f * before; sums[2] += at_o * cell;
      sums[3] += i; sums[4] += f; sums[5] += g; sums[6] += o; sums[7] += h;
      sums[8] += i * (1 - i); sums[9] += f * (1 - f); sums[10] += 1 - g * g;
      sums[11] += o * (1 - o); sums[12] += 1 - h * h;"""
_OVER_ROWS = """
    __shared__ double part[8][33];
    __shared__ bool is_last;
    const int lane = threadIdx.x / 32, column = threadIdx.x % 32;
    const long long c = tile * 32 + column, end = nn_min(rows, (slice + 1) * span);
    double sums[13];
    for (int k = 0; k < 13; ++k) sums[k] = 0;
    for (long long r = slice * span + lane; c < dim && r < end; r += 8) {{{body}
    }}
    for (int k = 0; k < 13; ++k) {{
      part[lane][column] = sums[k];
      __syncthreads();
      if (lane == 0 && c < dim) {{
        double total = 0;
        for (int l = 0; l < 8; ++l) total += part[l][column];
        partial[[slice, k, c]] = total;
      }}
      __syncthreads();
    }}
    if (nn_is_last(tickets + tile, n_slice, threadIdx.x == 0, &is_last) && c < dim) {{
      for (int k = lane; k < 13; k += 8) {{
        double total = 0;
        #pragma unroll 8
        for (long long s = 0; s < n_slice; ++s) total += partial[[s, k, c]];
        {store}
      }}
    }}
"""


def _values(x: Array, dim: int) -> str:
    """The code of the values, with the scales of dropout if there are any."""
    dropout = x.shape[1] > 5 * dim
    scales = (f"x[[r, 5 * dim + {k}]]" if dropout else "T(1)" for k in range(3))
    return _VALUES.format(**dict(zip(("i_scale", "f_scale", "o_scale"), scales, strict=True)))


@implements("lstm_nonlinearity", "cupy", binder=True)
def bind_lstm_nonlinearity(out: Array, x: Array, params: Array) -> Step:
    """One kernel."""
    dim = params.shape[1]
    arrays = {"out": out, "x": x, "w": params}
    space = {"r": x.shape[0], "c": dim}
    return grid_step("lstm", space, arrays, _values(x, dim) + _FORWARD, dim=np.int64(dim))


@implements("lstm_nonlinearity_backprop", "cupy", binder=True)
def bind_lstm_nonlinearity_backprop(
    x: Array, params: Array, out_deriv: Array, repair: Array, in_deriv: Array | None = None,
    params_deriv: Array | None = None, value_sum: Array | None = None,
    deriv_sum: Array | None = None,
) -> Step:  # fmt: skip
    """One kernel."""
    rows, dim = x.shape[0], params.shape[1]
    arrays = {"x": x, "w": params, "e": out_deriv, "repair": repair}
    body, steps = _values(x, dim) + _DERIVS, list[Step]()
    if in_deriv is not None:
        arrays["in_deriv"] = in_deriv
        body += _INPUT_DERIVS
        if in_deriv.shape[1] > 5 * dim:
            steps.append(fill.bind(in_deriv[:, 5 * dim :], 0.0))
    totals = {"params_deriv": params_deriv, "value_sum": value_sum, "deriv_sum": deriv_sum}
    given = {name: array for name, array in totals.items() if array is not None}
    if given:
        steps.append(_with_sums(rows, dim, arrays, body, given))
    elif in_deriv is not None:
        steps.append(
            grid_step("lstm_derivs", {"r": rows, "c": dim}, arrays, body, dim=np.int64(dim))
        )

    def run() -> None:
        for step in steps:
            step()

    return run


def _with_sums(
    rows: int, dim: int, arrays: dict[str, Array], body: str, totals: dict[str, Array]
) -> Step:
    slices, tiles = slices_of(rows, dim, get_device().num_processors)
    partial = get_device().empty((slices, _SUMS, dim), np.float64)
    tickets = zero_tickets(tiles)
    code = {
        "params_deriv": "if (k < 3) params_deriv[[k, c]] = total;",
        "value_sum": "if (k >= 3 && k < 8) value_sum[[k - 3, c]] += total;",
        "deriv_sum": "if (k >= 8) deriv_sum[[k - 8, c]] += total;",
    }
    store = "\n        ".join(code[name] for name in totals)
    return block_step(
        "lstm_derivs", {"slice": slices, "tile": tiles}, COLUMNS * LANES,
        {**arrays, "partial": partial, **totals, "tickets": tickets},
        _OVER_ROWS.format(body=body + _ADD_SUMS, store=store), writes=[tickets],
        dim=np.int64(dim), rows=np.int64(rows), span=np.int64(-(-rows // slices)),
    )  # fmt: skip
