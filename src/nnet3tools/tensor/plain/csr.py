"""Sparse products on NumPy: rows of the dense operand gathered, scaled, and summed by segments."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from nnet3tools.tensor.registry import implements


@implements("csr_dot", "numpy", binder=True)
def bind_csr_dot(
    out: np.ndarray,
    values: np.ndarray,
    indexes: np.ndarray,
    offsets: np.ndarray,
    b: np.ndarray,
    trans: bool = False,
    beta: float = 0.0,
) -> Callable[[], None]:
    """Entries sorted by the row they add to; where these begin is found once."""
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
