"""Products of a sparse matrix, in compressed rows, and a dense one."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator

__all__ = ["csr_dot"]


@operator()
def csr_dot(
    out: Array,
    values: Array,
    indexes: Array,
    offsets: Array,
    b: Array,
    trans: bool = False,
    beta: float = 0.0,
) -> None:
    """out = beta * out + S b, or S' b with `trans`.

    Row i of S has values[offsets[i]:offsets[i + 1]] in the columns that `indexes` says; `offsets`
    has an entry more than S has rows. out and b may be views of any strides.
    """
    total = np.zeros(out.shape, np.float64)
    for row in range(len(offsets) - 1):
        for k in range(offsets[row], offsets[row + 1]):
            to, source = (indexes[k], row) if trans else (row, indexes[k])
            total[to] += values[k] * np.float64(b[source])
    out[...] = total if beta == 0.0 else total + beta * out
