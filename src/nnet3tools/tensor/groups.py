"""Reductions over groups of neighbouring columns."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator

__all__ = ["group_norm", "group_norm_backprop", "sum_column_ranges"]


@operator()
def group_norm(out: Array, x: Array) -> None:
    """Set out (N, G) to the Euclidean norms of the G equal groups of columns of x (N, G * g)."""
    groups = np.asarray(x, np.float64).reshape(*out.shape, -1)
    out[...] = np.sqrt(np.sum(groups * groups, axis=2))


@operator(writes=("in_deriv",))
def group_norm_backprop(
    in_deriv: Array, in_value: Array, out_value: Array, out_deriv: Array
) -> None:
    """Set in_deriv to the derivative by the input of group_norm; zero where the norm is zero."""
    size = in_value.shape[1] // out_value.shape[1]
    safe = np.where(out_value == 0.0, 1.0, out_value)
    factor = np.where(out_value == 0.0, 0.0, out_deriv / safe)
    in_deriv[...] = in_value * np.repeat(factor, size, axis=1)


@operator()
def sum_column_ranges(out: Array, x: Array, ranges: Array) -> None:
    """Set out[:, j] to the sum of x[:, begin:end], row j of the int32 array `ranges` (begin, end).

    The ranges are not empty and cover the columns of x one after another.
    """
    sums = np.concatenate(
        [np.zeros((len(x), 1)), np.cumsum(np.asarray(x, np.float64), axis=1)], axis=1
    )
    out[...] = sums[:, ranges[:, 1]] - sums[:, ranges[:, 0]]
