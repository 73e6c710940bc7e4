"""Layer norm and RMS norm on CUDA: a block of threads for each row.

The sums over columns that the derivatives of scale and offset are follow from two numbers a row,
which the rows' kernel leaves behind.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from nnet3tools.tensor.aggregate import aggregate
from nnet3tools.tensor.cupy_backend.device import Array, get_device
from nnet3tools.tensor.cupy_backend.strided import block_step
from nnet3tools.tensor.registry import implements

Step = Callable[[], None]

_column_sums = aggregate("_1", "sum", axis=0)
_scale_sums = aggregate("_1 * (_2 - _3) * _4", "sum", axis=0)

# mean and inverse of the row; two passes, as the mean square less the square of the mean cancels
_MEAN = """
    for (long long c = threadIdx.x; c < width; c += blockDim.x) acc.add(x[[r, c]]);
    const T mean = nn_block(acc, part).a / width;
    acc.init();"""
_STATS = """
    __shared__ nn_Sum<T> part[9];
    nn_Sum<T> acc; acc.init();{mean}
    for (long long c = threadIdx.x; c < width; c += blockDim.x) {{
      const T value = x[[r, c]] - mean;
      acc.add(value * value);
    }}
    const T inverse = T(1) / sqrt(nn_block(acc, part).a / width + eps);
"""
_FORWARD = """
    for (long long c = threadIdx.x; c < width; c += blockDim.x)
      out[[r, c]] = (x[[r, c]] - mean) * inverse{scale}{offset};
"""
_KEEP = """
    if (threadIdx.x == 0) { stats[[r, 0]] = mean; stats[[r, 1]] = inverse; }
"""
_BACKWARD = """
    nn_Sum<T> dot; acc.init(); dot.init();
    for (long long c = threadIdx.x; c < width; c += blockDim.x) {{
      const T g = e[[r, c]]{scale};
      acc.add(g);
      dot.add(g * ((x[[r, c]] - mean) * inverse));
    }}
    const T shift = {shift}, inner = nn_block(dot, part).a / width;
    for (long long c = threadIdx.x; c < width; c += blockDim.x) {{
      const T g = e[[r, c]]{scale};
      in_deriv[[r, c]] {assign} (g - shift - (x[[r, c]] - mean) * inverse * inner) * inverse;
    }}
"""


def _stats(centred: bool) -> str:
    return _STATS.format(mean=_MEAN if centred else "\n    const T mean = T(0);")


def _bind(what: str, body: str, arrays: dict[str, Array | None], eps: float) -> Step:
    given = {name: array for name, array in arrays.items() if array is not None}
    x = given["x"]
    width = x.shape[1]
    if not width:
        return lambda: None
    numbers = {"width": np.int64(width), "eps": x.dtype.type(eps)}
    return block_step(what, {"r": x.shape[0]}, width, given, body, **numbers)


def _bind_forward(
    name: str, out: Array, x: Array, scale: Array | None = None, offset: Array | None = None,
    eps: float = 1e-9,
) -> Step:  # fmt: skip
    body = _stats(name == "layer_norm") + _FORWARD.format(
        scale="" if scale is None else " * scale[[c]]",
        offset="" if offset is None else " + offset[[c]]",
    )
    return _bind(name, body, {"out": out, "x": x, "scale": scale, "offset": offset}, eps)


def _bind_backward(
    name: str, x: Array, out_deriv: Array, scale: Array | None = None, eps: float = 1e-9,
    in_deriv: Array | None = None, scale_deriv: Array | None = None,
    offset_deriv: Array | None = None, add: bool = True,
) -> Step:  # fmt: skip
    centred, steps = name == "layer_norm", list[Callable[[], object]]()
    stats = None if scale_deriv is None else get_device().empty((len(x), 2), x.dtype)
    if in_deriv is not None or stats is not None:
        body = _stats(centred) + ("" if stats is None else _KEEP)
        if in_deriv is not None:
            body += _BACKWARD.format(
                scale="" if scale is None else " * scale[[c]]",
                assign="+=" if add else "=",
                shift="nn_block(acc, part).a / width" if centred else "T(0)",
            )
        arrays = {"x": x, "e": out_deriv, "in_deriv": in_deriv, "scale": scale, "stats": stats}
        steps.append(_bind(f"{name}_backprop", body, arrays, eps))
    if stats is not None:
        rows = stats[:, :1], stats[:, 1:]
        steps.append(_scale_sums.bind(scale_deriv, out_deriv, x, *rows, beta=1.0))
    if offset_deriv is not None:
        steps.append(_column_sums.bind(offset_deriv, out_deriv, beta=1.0))

    def run() -> None:
        for step in steps:
            step()

    return run


for _name in ("layer_norm", "rms_norm"):
    implements(_name, "cupy", binder=True)(functools.partial(_bind_forward, _name))
    implements(f"{_name}_backprop", "cupy", binder=True)(functools.partial(_bind_backward, _name))
