"""Single elements of a matrix, given by row and column: what sparse targets need."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator


@operator()
def set_elements(out: Array, rows: np.ndarray, cols: np.ndarray, values: np.ndarray) -> None:
    """Set out to 0, except out[rows[i], cols[i]] = values[i]; no element occurs twice.

    `rows`, `cols` (int32) and `values` are all on the host, or all on the device of `out`. Elements
    in row -1 are left out.
    """
    out[...] = 0
    kept = rows >= 0
    out[rows[kept], cols[kept]] = values[kept]


@operator(writes=())
def dot_elements(a: Array, rows: np.ndarray, cols: np.ndarray, values: np.ndarray) -> float:
    """The sum of a[rows[i], cols[i]] * values[i], accumulated in float64.

    `rows`, `cols` (int32) and `values` are all on the host, or all on the device of `a`.
    Elements in row -1 are left out.
    """
    kept = rows >= 0
    elements, factors = a[rows[kept], cols[kept]], values[kept]
    return float(np.dot(elements.astype(np.float64), factors.astype(np.float64)))
