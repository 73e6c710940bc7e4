"""Groups of neighbouring columns on CUDA."""

from __future__ import annotations

from typing import Any

from nnet3tools.tensor.aggregate import aggregate
from nnet3tools.tensor.arrays import strided
from nnet3tools.tensor.call import in_turn
from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.function_files import cuda_functions
from nnet3tools.tensor.cuda.indexes import uploaded
from nnet3tools.tensor.cuda.launches import Step
from nnet3tools.tensor.element import element
from nnet3tools.tensor.registry import implements

_functions = cuda_functions(__file__)

_sqrt = element("_1 = sqrt(_1)")
_sum_squares = aggregate("_1 * _1", "sum", axis=2)
_norm_backprop = element("_1 = where(_3 != 0, _2 * (_4 / where(_3 != 0, _3, 1)), 0)")


@implements("group_norm", "cupy", binder=True)
def bind_group_norm(out: Array, x: Array) -> Step:
    """A callable that runs `group_norm`: sums of squares over the groups, then square roots."""
    groups = x.reshape(*out.shape, -1)
    return in_turn([_sum_squares.bind(out, groups), _sqrt.bind(out)])


@implements("group_norm_backprop", "cupy", binder=True)
def bind_group_norm_backprop(
    in_deriv: Array, in_value: Array, out_value: Array, out_deriv: Array
) -> Step:
    """A callable that runs the derivative of `group_norm`: one formula with an axis for groups."""
    shape = (*out_value.shape, -1)
    return _norm_backprop.bind(
        _split(in_deriv, shape), _split(in_value, shape),
        out_value[:, :, None], out_deriv[:, :, None],
    )  # fmt: skip


def _split(array: Array, shape: tuple[int, ...]) -> Array:
    """A matrix as a view of this `shape`, (rows, groups, columns of a group), without a copy."""
    rows, columns = array.strides
    size = array.shape[1] // shape[1]
    split = (array.shape[0], shape[1], size)
    return strided(array, split, (rows, columns * size, columns))


@implements("sum_column_ranges", "cupy", binder=True)
def bind_sum_column_ranges(out: Array, x: Array, ranges: Any) -> Step:
    """A callable that runs `sum_column_ranges`, with a thread for each element of out."""
    return _functions["sum_column_ranges"].on_grid(out.shape, out=out, x=x, ranges=uploaded(ranges))
