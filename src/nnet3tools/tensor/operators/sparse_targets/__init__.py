"""Single elements of a matrix, given by row and column: what sparse targets need."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator


@operator()
def set_elements(out: Array, rows: np.ndarray, cols: np.ndarray, values: np.ndarray) -> None:
    """Set out to 0, except for values[i] at (rows[i], cols[i]); no element is given twice.

    `rows`, `cols` (int32) and `values` are all on the host, or all on the device of `out`.
    """
    out[...] = 0
    out[rows, cols] = values


@operator(writes=())
def dot_elements(a: Array, rows: np.ndarray, cols: np.ndarray, values: np.ndarray) -> float:
    """The sum of a[rows[i], cols[i]] * values[i], accumulated in float64; see `set_elements`."""
    return float(np.dot(np.asarray(a[rows, cols], np.float64), np.asarray(values, np.float64)))
