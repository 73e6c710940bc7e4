"""Order along an axis: indexes of the sorted elements, and cumulative sums."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator


@operator(types=("int32",))
def sort_indexes(out: Array, x: Array, axis: int, descending: bool) -> None:
    """Set out (int32) to the indexes of the first elements of x in sorted order along an axis.

    The size of out along the axis is the number of indexes wanted. Equal elements keep order.
    """
    if out.shape[axis] == 1:
        find = np.argmax if descending else np.argmin
        out[...] = np.expand_dims(find(x, axis=axis), axis)
        return
    if descending:
        x = -x.astype(np.float64) if x.dtype.kind in "biu" else -x
    order = np.argsort(x, axis=axis, kind="stable")
    out[...] = order[(slice(None),) * axis + (slice(out.shape[axis]),)]


@operator()
def cumulative_sum(
    out: Array, x: Array, axis: int, reverse: bool, exclusive: bool, beta: float = 0.0
) -> None:
    """Set out to beta * out + the sums of x up to each element along an axis.

    `reverse` sums from the end; `exclusive` leaves out the element itself.
    """
    source, target = (np.flip(a, axis) if reverse else a for a in (x, out))
    total = np.cumsum(source, axis=axis)
    front = (slice(None),) * axis
    if exclusive:
        total[(*front, slice(1, None))] = total[(*front, slice(None, -1))].copy()
        total[(*front, slice(0, 1))] = 0
    if beta != 0.0:
        total += target if beta == 1.0 else target * target.dtype.type(beta)
    target[...] = total
