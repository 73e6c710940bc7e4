"""Softmax, its kin, and row normalisation on CUDA: a block of threads for each row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.cupy_backend.device import Array
from nnet3tools.tensor.cupy_backend.operands import overlap
from nnet3tools.tensor.cupy_backend.strided import block_step
from nnet3tools.tensor.normalize import SQUARED_NORM_FLOOR
from nnet3tools.tensor.registry import implements

Step = Callable[[], None]

_LOG_SUM = """
    __shared__ nn_LogSumExp<T> part[9];
    nn_LogSumExp<T> acc; acc.init();
    for (long long c = threadIdx.x; c < width; c += blockDim.x) acc.add(x[[i, j, c]]);
    acc = nn_block(acc, part);
    const T top = acc.a, total = log(acc.b);
    for (long long c = threadIdx.x; c < width; c += blockDim.x) {
      const T value = x[[i, j, c]] - top - total;
"""
_SUM = """
    __shared__ nn_Sum<T> part[9];
    nn_Sum<T> acc; acc.init();
    for (long long c = threadIdx.x; c < width; c += blockDim.x) acc.add({term});
    const T total = nn_block(acc, part).a;
    for (long long c = threadIdx.x; c < width; c += blockDim.x)
      in_deriv[[i, j, c]] = {value};
"""
_NORMALIZE = """
    __shared__ nn_Sum<T> part[9];
    nn_Sum<T> acc; acc.init();
    for (long long c = threadIdx.x; c < width; c += blockDim.x)
      acc.add(x[[i, j, c]] * x[[i, j, c]]);
    const T square = nn_block(acc, part).a / d_scaled;
    const T scale = T(1) / sqrt(nn_max(square, floor));
    for (long long c = threadIdx.x; c < width; c += blockDim.x)
      out[[i, j, c]] = x[[i, j, c]] * scale;
    if (add_log && threadIdx.x == 0) out[[i, j, width]] = log_rms - log(scale);
"""
_DIFF_NORMALIZE = """
    __shared__ nn_Sum<T> part[9];
    nn_Sum<T> acc, dot; acc.init(); dot.init();
    for (long long c = threadIdx.x; c < width; c += blockDim.x) {
      acc.add(x[[i, j, c]] * x[[i, j, c]]);
      dot.add(x[[i, j, c]] * e[[i, j, c]]);
    }
    const T square = nn_block(acc, part).a, inner = nn_block(dot, part).a;
    const T f = T(1) / sqrt(nn_max(square / d_scaled, floor));
    T factor = square / d_scaled <= floor ? T(0) : -f * f * f * inner / d_scaled;
    if (add_log) factor += e[[i, j, width]] / nn_max(square, width * floor);
    __syncthreads();
    for (long long c = threadIdx.x; c < width; c += blockDim.x) {
      const T value = f * e[[i, j, c]] + factor * x[[i, j, c]];
      in_deriv[[i, j, c]] = in_place ? value : in_deriv[[i, j, c]] + value;
    }
"""


def _rows(array: Array) -> Array:
    """The array with three axes."""
    if array.ndim > 3:
        raise ProgramError(f"rows of an array of {array.ndim} axes")
    return array[(None,) * (3 - array.ndim)] if array.ndim < 3 else array


def _bind(what: str, body: str, arrays: dict[str, Array], width: int, **numbers: Any) -> Step:
    operands = {name: _rows(array) for name, array in arrays.items()}
    shape = next(iter(operands.values())).shape
    if width == 0:
        return lambda: None
    space = {"i": shape[0], "j": shape[1]}
    return block_step(what, space, width, operands, body, width=np.int64(width), **numbers)


@implements("softmax", "cupy", binder=True)
def bind_softmax(out: Array, x: Array) -> Step:
    """The row's log-sum-exp in one pass, the powers in a second."""
    body = _LOG_SUM + "      out[[i, j, c]] = exp(value);\n    }"
    return _bind("softmax", body, {"out": out, "x": x}, x.shape[-1])


@implements("log_softmax", "cupy", binder=True)
def bind_log_softmax(out: Array, x: Array) -> Step:
    """The row's log-sum-exp in one pass, the differences in a second."""
    body = _LOG_SUM + "      out[[i, j, c]] = value;\n    }"
    return _bind("log_softmax", body, {"out": out, "x": x}, x.shape[-1])


@implements("softmax_backprop", "cupy", binder=True)
def bind_softmax_backprop(in_deriv: Array, out_value: Array, out_deriv: Array) -> Step:
    """y (e - sum(y e))."""
    body = _SUM.format(
        term="y[[i, j, c]] * e[[i, j, c]]", value="y[[i, j, c]] * (e[[i, j, c]] - total)"
    )
    arrays = {"in_deriv": in_deriv, "y": out_value, "e": out_deriv}
    return _bind("softmax_backprop", body, arrays, in_deriv.shape[-1])


@implements("log_softmax_backprop", "cupy", binder=True)
def bind_log_softmax_backprop(in_deriv: Array, out_value: Array, out_deriv: Array) -> Step:
    """e - exp(y) sum(e)."""
    body = _SUM.format(
        term="e[[i, j, c]]", value="e[[i, j, c]] - exp(y[[i, j, c]]) * total"
    )  # fmt: skip
    arrays = {"in_deriv": in_deriv, "y": out_value, "e": out_deriv}
    return _bind("log_softmax_backprop", body, arrays, in_deriv.shape[-1])


@implements("normalize_per_row", "cupy", binder=True)
def bind_normalize_per_row(out: Array, x: Array, target_rms: float, add_log_stddev: bool) -> Step:
    """The row's sum of squares in one pass, the scaling in a second."""
    width, kind = x.shape[1], x.dtype.type
    return _bind(
        "normalize", _NORMALIZE, {"out": out, "x": x}, width,
        d_scaled=kind(width * target_rms**2), floor=kind(SQUARED_NORM_FLOOR),
        log_rms=kind(math.log(target_rms)), add_log=np.int32(add_log_stddev),
    )  # fmt: skip


@implements("diff_normalize_per_row", "cupy", binder=True)
def bind_diff_normalize_per_row(
    in_deriv: Array, in_value: Array, out_deriv: Array, target_rms: float, add_log_stddev: bool
) -> Step:
    """Two sums of the row in one pass, f e + c x in a second."""
    width, kind = in_value.shape[1], in_value.dtype.type
    return _bind(
        "diff_normalize", _DIFF_NORMALIZE,
        {"in_deriv": in_deriv, "x": in_value, "e": out_deriv}, width,
        d_scaled=kind(width * target_rms**2), floor=kind(SQUARED_NORM_FLOOR),
        add_log=np.int32(add_log_stddev), in_place=np.int32(overlap(in_deriv, out_deriv) != ""),
    )  # fmt: skip
