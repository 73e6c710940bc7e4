"""Products of a sparse matrix, in compressed rows, and a dense one."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator


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
    """Set out to beta * out + S b, or with `trans` to beta * out + S' b, for a sparse matrix S.

    Row i of S has the entries k with offsets[i] <= k < offsets[i + 1]: values[k] in column
    indexes[k]. out and b may be views of any strides.
    """
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    to, source, factors = rows, np.asarray(indexes), values
    if trans:
        order = np.argsort(indexes, kind="stable")
        to, source, factors = source[order], rows[order], values[order]
    places, starts = np.unique(to, return_index=True)
    if beta == 0.0:
        out[...] = 0
    elif beta != 1.0:
        out *= out.dtype.type(beta)
    if len(places):
        out[places] += np.add.reduceat(b[source] * factors[:, None], starts, axis=0)
