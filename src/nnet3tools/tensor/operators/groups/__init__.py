"""Reductions over groups of neighbouring columns."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import implements, operator

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


@implements("group_norm", "numpy")
def _group_norm(out: np.ndarray, x: np.ndarray) -> None:
    """Splitting the last axis is a view, even of strided matrices."""
    groups = x.reshape(*out.shape, -1)
    np.sqrt(np.einsum("ngk,ngk->ng", groups, groups), out=out)


@implements("group_norm_backprop", "numpy")
def _group_norm_backprop(
    in_deriv: np.ndarray, in_value: np.ndarray, out_value: np.ndarray, out_deriv: np.ndarray
) -> None:
    """One factor a group."""
    shape = (*out_value.shape, -1)
    factor = np.zeros_like(out_value)
    np.divide(out_deriv, out_value, out=factor, where=out_value != 0.0)
    in_deriv[...] = (in_value.reshape(shape) * factor[:, :, None]).reshape(in_deriv.shape)


@implements("sum_column_ranges", "numpy")
def _sum_column_ranges(out: np.ndarray, x: np.ndarray, ranges: np.ndarray) -> None:
    """The ranges follow each other, so their starts say it all."""
    np.add.reduceat(x, ranges[:, 0], axis=1, out=out)
