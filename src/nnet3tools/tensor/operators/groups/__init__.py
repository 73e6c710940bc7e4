"""Reductions over groups of neighbouring columns."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator


@operator()
def group_norm(out: Array, x: Array) -> None:
    """Set out (N, G) to the Euclidean norms of the G equal groups of columns of x (N, G * g)."""
    groups = x.reshape(*out.shape, -1)
    np.sqrt(np.einsum("ngk,ngk->ng", groups, groups), out=out)


@operator(writes=("in_deriv",))
def group_norm_backprop(
    in_deriv: Array, in_value: Array, out_value: Array, out_deriv: Array
) -> None:
    """Set in_deriv to the derivative by the input of `group_norm`; it is 0 where the norm is 0."""
    shape = (*out_value.shape, -1)
    factor = np.zeros_like(out_value)
    np.divide(out_deriv, out_value, out=factor, where=out_value != 0.0)
    in_deriv[...] = (in_value.reshape(shape) * factor[:, :, None]).reshape(in_deriv.shape)


@operator()
def sum_column_ranges(out: Array, x: Array, ranges: Array) -> None:
    """Set out[:, j] to the sum of x[:, begin:end], with (begin, end) = ranges[j], int32.

    The ranges are not empty and cover the columns of x one after another.
    """
    np.add.reduceat(x, ranges[:, 0], axis=1, out=out)
