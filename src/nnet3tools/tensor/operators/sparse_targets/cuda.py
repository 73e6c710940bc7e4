"""Sparse targets on CUDA. They differ in each minibatch, so no copies are kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.basics import fill
from nnet3tools.tensor.cuda.device import Array, get_device
from nnet3tools.tensor.cuda.function_files import cuda_functions
from nnet3tools.tensor.cuda.indexes import sent
from nnet3tools.tensor.number import Number
from nnet3tools.tensor.registry import device_of, implements

_functions = cuda_functions(__file__)


def _elements(rows: Any, cols: Any, values: Any, dtype: Any) -> dict[str, Array]:
    places = {"rows": _sent(rows, np.int32), "cols": _sent(cols, np.int32)}
    return {**places, "values": _sent(values, dtype)}


def _sent(array: Any, dtype: Any) -> Array:
    """The array on the device, of type `dtype`: a host array is uploaded, others are returned."""
    if device_of(array) == "numpy":
        return sent(array, dtype)
    if array.dtype != dtype:
        raise ProgramError(f"sparse targets of type {array.dtype}: expected {np.dtype(dtype)}")
    return array


@implements("set_elements", "cupy")
def set_elements(out: Array, rows: np.ndarray, cols: np.ndarray, values: np.ndarray) -> None:
    """Set `out` to zero, then store `values` at their rows and columns, with a thread for each."""
    fill(out, 0.0)
    elements = _elements(rows, cols, values, out.dtype)
    _functions["set_elements"].on_grid((len(rows),), out=out, **elements)()


@implements("dot_elements", "cupy")
def dot_elements(a: Array, rows: np.ndarray, cols: np.ndarray, values: np.ndarray) -> Any:
    """The sum of a[rows[i], cols[i]] * values[i] as a Number on the device, added by one block."""
    result = get_device().empty((1,), np.float64)
    elements = _elements(rows, cols, values, a.dtype)
    _functions["dot_elements"].by_blocks(
        (1,), 256, a=a, result=result, **elements, count=len(rows)
    )()
    return Number(result)
