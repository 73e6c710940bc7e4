"""Sorting and cumulative sums on NumPy."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.registry import implements


@implements("sort_indexes", "numpy")
def sort_indexes(out: np.ndarray, x: np.ndarray, axis: int, descending: bool) -> None:
    """One element is found without sorting; else a stable sort."""
    if out.shape[axis] == 1:
        find = np.argmax if descending else np.argmin
        out[...] = np.expand_dims(find(x, axis=axis), axis)
        return
    if descending:
        x = -x.astype(np.float64) if x.dtype.kind in "biu" else -x
    order = np.argsort(x, axis=axis, kind="stable")
    out[...] = order[(slice(None),) * axis + (slice(out.shape[axis]),)]


@implements("cumulative_sum", "numpy")
def cumulative_sum(
    out: np.ndarray,
    x: np.ndarray,
    axis: int,
    reverse: bool,
    exclusive: bool,
    beta: float = 0.0,
) -> None:
    """numpy.cumsum of a view that is flipped for `reverse`, moved on by one for `exclusive`."""
    source, target = (np.flip(a, axis) if reverse else a for a in (x, out))
    total = np.cumsum(source, axis=axis)
    front = (slice(None),) * axis
    if exclusive:
        total[(*front, slice(1, None))] = total[(*front, slice(None, -1))].copy()
        total[(*front, slice(0, 1))] = 0
    if beta != 0.0:
        total += target if beta == 1.0 else target * target.dtype.type(beta)
    target[...] = total
