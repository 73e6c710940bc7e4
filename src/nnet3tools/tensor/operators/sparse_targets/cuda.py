"""Sparse targets on CUDA; they are new every time, so that nothing is kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.cuda.device import Array, get_device
from nnet3tools.tensor.cuda.indexes import sent
from nnet3tools.tensor.cuda.strided import block_step, grid_step
from nnet3tools.tensor.element import element
from nnet3tools.tensor.number import Number
from nnet3tools.tensor.registry import device_of, implements

_fill = element("_1 = _2")


def _elements(rows: Any, cols: Any, values: Any, dtype: Any) -> dict[str, Array]:
    return {
        "rows": _sent(rows, np.int32),
        "cols": _sent(cols, np.int32),
        "values": _sent(values, dtype),
    }


def _sent(array: Any, dtype: Any) -> Array:
    """A host array uploaded; what is on the device already, as it is."""
    if device_of(array) == "numpy":
        return sent(array, dtype)
    if array.dtype != dtype:
        raise ProgramError(f"sparse targets of type {array.dtype}: expected {np.dtype(dtype)}")
    return array


@implements("set_elements", "cupy")
def set_elements(out: Array, rows: np.ndarray, cols: np.ndarray, values: np.ndarray) -> None:
    """Zero everything, then one thread an element."""
    _fill(out, 0.0)
    arrays = {"out": out, **_elements(rows, cols, values, out.dtype)}
    body = "out[[rows[[k]], cols[[k]]]] = values[[k]];"
    grid_step("set_elements", {"k": len(rows)}, arrays, body)()


@implements("dot_elements", "cupy")
def dot_elements(a: Array, rows: np.ndarray, cols: np.ndarray, values: np.ndarray) -> Any:
    """One block of threads, in float64; the number stays on the device."""
    result = get_device().empty((1,), np.float64)
    arrays = {"a": a, "result": result, **_elements(rows, cols, values, a.dtype)}
    body = """
    __shared__ nn_Sum<double> part[9];
    nn_Sum<double> acc; acc.init();
    for (long long k = threadIdx.x; k < count; k += blockDim.x)
      acc.add((double)a[[rows[[k]], cols[[k]]]] * (double)values[[k]]);
    acc = nn_block(acc, part);
    if (threadIdx.x == 0) result[[one]] = acc.a;"""
    block_step("dot_elements", {"one": 1}, 256, arrays, body, count=np.int64(len(rows)))()
    return Number(result)
