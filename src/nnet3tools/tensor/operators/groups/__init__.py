"""Reductions over groups of neighbouring columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nnet3tools.tensor.arrays import Array, strided
from nnet3tools.tensor.call import Call, operator_of_formulas
from nnet3tools.tensor.element import element
from nnet3tools.tensor.registry import operator


@operator()
def group_norm(out: Array, x: Array) -> None:
    """Set out (N, G) to the Euclidean norms of the G equal groups of columns of x (N, G * g)."""
    groups = x.reshape(*out.shape, -1)
    np.sqrt(np.einsum("ngk,ngk->ng", groups, groups), out=out)


_norm_backprop = element("_1 = _2 * where(_3 != 0, _4 / where(_3 != 0, _3, 1), 0)")


@operator_of_formulas(writes=("in_deriv",))
def group_norm_backprop(
    in_deriv: Array, in_value: Array, out_value: Array, out_deriv: Array
) -> Iterator[Call]:
    """Set in_deriv (N, G * g) to the derivative by in_value, the input of `group_norm`.

    out_value and out_deriv (N, G) are the norms of the G groups of g neighbouring columns and the
    derivative by the norms. Where a norm is 0, in_deriv is 0. The decorator runs the yielded Calls.
    """
    views = (_in_groups(array, out_value.shape[1]) for array in (in_deriv, in_value))
    yield Call.of(_norm_backprop, *views, out_value[:, :, None], out_deriv[:, :, None])


def _in_groups(array: Array, groups: int) -> Array:
    """A view of a matrix as (rows, groups, columns of a group); `reshape` might copy it."""
    (rows, columns), (down, along) = array.shape, array.strides
    size = columns // groups
    return strided(array, (rows, groups, size), (down, along * size, along))


@operator()
def sum_column_ranges(out: Array, x: Array, ranges: Array) -> None:
    """Set out[:, j] to the sum of x[:, begin:end], with (begin, end) = ranges[j], int32.

    The ranges are not empty and cover the columns of x one after another.
    """
    np.add.reduceat(x, ranges[:, 0], axis=1, out=out)
