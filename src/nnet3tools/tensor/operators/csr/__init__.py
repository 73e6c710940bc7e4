"""Products of a sparse matrix, in compressed rows, and a dense one."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import implements, operator

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
    """Set out to beta * out + S b, or to beta * out + S' b with `trans`.

    Row i of S has the entries k with offsets[i] <= k < offsets[i + 1]: values[k] in column
    indexes[k]. out and b may be views of any strides.
    """
    total = np.zeros(out.shape, np.float64)
    for row in range(len(offsets) - 1):
        for k in range(offsets[row], offsets[row + 1]):
            to, source = (indexes[k], row) if trans else (row, indexes[k])
            total[to] += values[k] * np.float64(b[source])
    out[...] = total if beta == 0.0 else total + beta * out


@implements("csr_dot", "numpy", binder=True)
def _csr_dot(
    out: np.ndarray,
    values: np.ndarray,
    indexes: np.ndarray,
    offsets: np.ndarray,
    b: np.ndarray,
    trans: bool = False,
    beta: float = 0.0,
) -> Callable[[], None]:
    """Bind a function that scales gathered rows of b and adds them up by segments (reduceat)."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    to, source, order = rows, np.asarray(indexes), None
    if trans:
        order = np.argsort(indexes, kind="stable")
        to, source = source[order], rows[order]
    places, starts = np.unique(to, return_index=True)
    return functools.partial(_run, out, values, b, order, source, places, starts, beta)


def _run(
    out: np.ndarray,
    values: np.ndarray,
    b: np.ndarray,
    order: np.ndarray | None,
    source: np.ndarray,
    places: np.ndarray,
    starts: np.ndarray,
    beta: float,
) -> None:
    if beta == 0.0:
        out[...] = 0
    elif beta != 1.0:
        out *= out.dtype.type(beta)
    if len(places):
        factors = values if order is None else values[order]
        out[places] += np.add.reduceat(b[source] * factors[:, None], starts, axis=0)
