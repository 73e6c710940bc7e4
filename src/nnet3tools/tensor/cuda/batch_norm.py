"""Batch normalisation on CUDA: one kernel goes over the matrix for its columns' sums, one writes.

For the sums, a block of threads goes down 32 columns over a slice of the rows, 8 rows at a time;
the last block of those columns adds up the slices, in order. Sums are float64, and forward those of
x less its first row: that keeps the digits of columns whose mean is much larger than the deviation
from it.

Aggregates and an element formula would be five kernels that read the matrix three times, instead
of two kernels and two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.tensor.cuda.device import Array, get_device
from nnet3tools.tensor.cuda.launch import COLUMNS, LANES, in_turn, slices_of
from nnet3tools.tensor.cuda.launches import zero_tickets
from nnet3tools.tensor.cuda.strided import block_step, grid_step
from nnet3tools.tensor.registry import implements

Step = Callable[[], None]

_SUMS = """
    __shared__ double part[2][8][33];
    __shared__ bool is_last;
    const int lane = threadIdx.x / 32, column = threadIdx.x % 32;
    const long long c = tile * 32 + column, end = nn_min(rows, (slice + 1) * span);
    double first = 0, second = 0;
    #pragma unroll 4
    for (long long r = slice * span + lane; c < dim && r < end; r += 8) {{{add}
    }}
    part[0][lane][column] = first;
    part[1][lane][column] = second;
    __syncthreads();
    if (lane < 2 && c < dim) {{
      double total = 0;
      for (int l = 0; l < 8; ++l) total += part[lane][l][column];
      partial[[slice, lane, c]] = total;
    }}
    if (nn_is_last(tickets + tile, n_slice, threadIdx.x == 0, &is_last)) {{
      first = second = 0;
      #pragma unroll 4
      for (long long s = lane; c < dim && s < n_slice; s += 8) {{
        first += partial[[s, 0, c]];
        second += partial[[s, 1, c]];
      }}
      part[0][lane][column] = first;
      part[1][lane][column] = second;
      __syncthreads();
      if (lane == 0 && c < dim) {{
        for (int l = 1; l < 8; ++l) {{
          first += part[0][l][column];
          second += part[1][l][column];
        }}
        first /= count; second /= count;{store}
      }}
    }}
"""
_ADD_FORWARD = """
      const double value = double(x[[r, c]]) - double(x[[0, c]]);
      first += value; second += value * value;"""
_ADD_BACKWARD = """
      const double slope = e[[r, c]];
      first += slope; second += slope * double(z[[r, c]]);"""
_STATS = """
      const double variance = nn_max(second - first * first, 0.0);
      const double mean = first + (rows > 0 ? double(x[[0, c]]) : 0.0);
      stats[[0, c]] = mean; stats[[1, c]] = variance + mean * mean;
      stats[[2, c]] = target_rms / sqrt(variance + epsilon);"""
_NORMALIZE = """
      out[[r, c]] = (x[[r, c]] - stats[[0, c]]) * stats[[2, c]];"""
_MEANS = """
      means[[0, c]] = first; means[[1, c]] = second / (target_rms * target_rms);"""
_BACKPROP = """
      in_deriv[[r, c]] = (e[[r, c]] - means[[0, c]] - z[[r, c]] * means[[1, c]]) * scale[[c]];"""


def _sum_columns(
    name: str, shape: tuple[int, int], arrays: dict[str, Array], add: str,
    results: dict[str, Array], store: str, **numbers: Any,
) -> Step:  # fmt: skip
    """The kernel that sums something over the rows and stores what follows from the means."""
    rows, dim = shape
    slices, tiles = slices_of(rows, dim, get_device().num_processors)
    partial = get_device().empty((slices, 2, dim), np.float64)
    tickets = zero_tickets(tiles)
    return block_step(
        f"{name}_sums", {"slice": slices, "tile": tiles}, COLUMNS * LANES,
        {**arrays, "partial": partial, **results, "tickets": tickets},
        _SUMS.format(add=add, store=store), writes=[tickets], dim=np.int64(dim),
        rows=np.int64(rows), span=np.int64(-(-rows // slices)),
        count=np.float64(max(1, rows)), **numbers,
    )  # fmt: skip


@implements("batch_norm", "cupy", binder=True)
def bind_batch_norm(out: Array, stats: Array, x: Array, epsilon: float, target_rms: float) -> Step:
    """Two kernels: sums and statistics, result."""
    sums = _sum_columns(
        "batch_norm", x.shape, {"x": x}, _ADD_FORWARD, {"stats": stats}, _STATS,
        epsilon=np.float64(epsilon), target_rms=np.float64(target_rms),
    )  # fmt: skip
    space = {"r": x.shape[0], "c": x.shape[1]}
    arrays = {"out": out, "stats": stats, "x": x}
    return in_turn([sums, grid_step("batch_norm", space, arrays, _NORMALIZE)])


@implements("batch_norm_backprop", "cupy", binder=True)
def bind_batch_norm_backprop(
    in_deriv: Array, out_value: Array, out_deriv: Array, scale: Array, target_rms: float
) -> Step:
    """Two kernels: sums and means, result."""
    inputs = {"z": out_value, "e": out_deriv}
    means = get_device().empty((2, out_deriv.shape[1]), out_deriv.dtype)
    sums = _sum_columns(
        "batch_norm_backprop", out_deriv.shape, inputs, _ADD_BACKWARD, {"means": means}, _MEANS,
        target_rms=np.float64(target_rms),
    )  # fmt: skip
    space = {"r": out_deriv.shape[0], "c": out_deriv.shape[1]}
    arrays = {"in_deriv": in_deriv, **inputs, "means": means, "scale": scale}
    return in_turn([sums, grid_step("batch_norm_backprop", space, arrays, _BACKPROP)])
