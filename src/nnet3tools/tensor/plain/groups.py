"""Groups of neighbouring columns on NumPy."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.registry import implements


@implements("group_norm", "numpy")
def group_norm(out: np.ndarray, x: np.ndarray) -> None:
    """Splitting the last axis is a view, even of strided matrices."""
    groups = x.reshape(*out.shape, -1)
    np.sqrt(np.einsum("ngk,ngk->ng", groups, groups), out=out)


@implements("group_norm_backprop", "numpy")
def group_norm_backprop(
    in_deriv: np.ndarray, in_value: np.ndarray, out_value: np.ndarray, out_deriv: np.ndarray
) -> None:
    """One factor a group."""
    shape = (*out_value.shape, -1)
    factor = np.zeros_like(out_value)
    np.divide(out_deriv, out_value, out=factor, where=out_value != 0.0)
    in_deriv[...] = (in_value.reshape(shape) * factor[:, :, None]).reshape(in_deriv.shape)


@implements("sum_column_ranges", "numpy")
def sum_column_ranges(out: np.ndarray, x: np.ndarray, ranges: np.ndarray) -> None:
    """The ranges follow each other, so their starts say it all."""
    np.add.reduceat(x, ranges[:, 0], axis=1, out=out)
