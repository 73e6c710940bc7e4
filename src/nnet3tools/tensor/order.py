"""Order along an axis: indexes of the sorted elements, and cumulative sums."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator

__all__ = ["cumulative_sum", "sort_indexes"]


@operator(types=("int32",))
def sort_indexes(out: Array, x: Array, axis: int, descending: bool) -> None:
    """Out (int32) = places of the first elements of x in order along an axis, as many as out has.

    Of equal elements the one that comes first in x is first.
    """
    keys = -np.asarray(x, np.float64) if descending else np.asarray(x, np.float64)
    order = np.argsort(keys, axis=axis, kind="stable")
    out[...] = np.take(order, np.arange(out.shape[axis]), axis)


@operator()
def cumulative_sum(
    out: Array, x: Array, axis: int, reverse: bool, exclusive: bool, beta: float = 0.0
) -> None:
    """out = beta * out + the sum of x up to each place along an axis.

    `reverse` sums from the end; `exclusive` leaves out the element at the place itself.
    """
    flipped = np.flip(np.asarray(x, np.float64), axis) if reverse else np.asarray(x, np.float64)
    total = np.cumsum(flipped, axis=axis)
    if exclusive:
        total = total - flipped
    value = np.flip(total, axis) if reverse else total
    out[...] = value if beta == 0.0 else value + beta * out
