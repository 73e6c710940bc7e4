"""Groups of neighbouring columns on CUDA."""

from __future__ import annotations

from typing import Any

from nnet3tools.tensor.aggregate import aggregate
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


@implements("group_norm", "cupy", binder=True)
def bind_group_norm(out: Array, x: Array) -> Step:
    """A callable that runs `group_norm`: sums of squares over the groups, then square roots."""
    groups = x.reshape(*out.shape, -1)
    return in_turn([_sum_squares.bind(out, groups), _sqrt.bind(out)])


@implements("sum_column_ranges", "cupy", binder=True)
def bind_sum_column_ranges(out: Array, x: Array, ranges: Any) -> Step:
    """A callable that runs `sum_column_ranges`, with a thread for each element of out."""
    return _functions["sum_column_ranges"].on_grid(out.shape, out=out, x=x, ranges=uploaded(ranges))
