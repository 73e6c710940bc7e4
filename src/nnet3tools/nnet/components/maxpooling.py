"""MaxpoolingComponent: maximum over boxes of columns, with rows viewed as 3-D arrays.

File fields: Kaldi's MaxpoolingComponent (nnet-combined-component.cc).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from nnet3tools import tensor
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    Properties,
)
from nnet3tools.nnet.components.convolution import num_steps, windows
from nnet3tools.nnet.components.fields import Int
from nnet3tools.nnet.components.registry import register

_larger = tensor.element("_1 = max(_1, _2)")
_route = tensor.element("_1 += where(_2 == _3, _4, 0)")

Sizes = tuple[int, int, int]


@register
class MaxpoolingComponent(Component):
    """Maximum over boxes of the input, in which each row is an array over x, y, z."""

    FORMULA = "y[i, j, k] = max of x[i step_x + u, j step_y + v, k step_z + w] over u, v, w"
    PROPERTIES = (
        Properties.BACKPROP_NEEDS_INPUT
        | Properties.BACKPROP_NEEDS_OUTPUT
        | Properties.BACKPROP_ADDS
    )
    INFO = (
        "input_x_dim input_y_dim input_z_dim pool_x_size pool_y_size pool_z_size "
        "pool_x_step pool_y_step pool_z_step"
    )
    flops_per_input = 1

    input_x_dim = Int("<InputXDim>", "input-x-dim", positive=True)
    input_y_dim = Int("<InputYDim>", "input-y-dim", positive=True)
    input_z_dim = Int("<InputZDim>", "input-z-dim", positive=True)
    pool_x_size = Int("<PoolXSize>", "pool-x-size", positive=True)
    pool_y_size = Int("<PoolYSize>", "pool-y-size", positive=True)
    pool_z_size = Int("<PoolZSize>", "pool-z-size", positive=True)
    pool_x_step = Int("<PoolXStep>", "pool-x-step", positive=True)
    pool_y_step = Int("<PoolYStep>", "pool-y-step", positive=True)
    pool_z_step = Int("<PoolZStep>", "pool-z-step", positive=True)

    def problem(self) -> str | None:
        axes = zip("xyz", self.input_dims, self.pool_sizes, self.pool_steps, strict=True)
        for axis, dim, size, step in axes:
            if not dim >= size >= step or (dim - size) % step != 0:
                return (
                    f"pools of {axis}-size {size} with step {step} do not cover "
                    f"input-{axis}-dim={dim}"
                )
        return None

    @cached_property
    def input_dims(self) -> Sizes:
        """Size of an input row along x, y, z."""
        return self.input_x_dim, self.input_y_dim, self.input_z_dim

    @cached_property
    def pool_sizes(self) -> Sizes:
        """Size of a box along x, y, z."""
        return self.pool_x_size, self.pool_y_size, self.pool_z_size

    @cached_property
    def pool_steps(self) -> Sizes:
        """Distance between boxes along x, y, z."""
        return self.pool_x_step, self.pool_y_step, self.pool_z_step

    @cached_property
    def num_pools(self) -> Sizes:
        """Number of boxes along x, y, z, which is the shape of an output row."""
        x, y, z = map(num_steps, self.input_dims, self.pool_sizes, self.pool_steps)
        return x, y, z

    @property
    def input_dim(self) -> int:
        return math.prod(self.input_dims)

    @property
    def output_dim(self) -> int:
        return math.prod(self.num_pools)

    def _places(self, matrix: Array) -> Iterator[Array]:
        """Yield, for each position in a box, a view of every box's element there."""
        images = matrix.reshape(-1, *self.input_dims)
        for place in np.ndindex(*self.pool_sizes):
            yield images[(slice(None), *map(windows, place, self.num_pools, self.pool_steps))]

    def _pools(self, matrix: Array) -> Array:
        """View of an output (or its derivative) as (rows, boxes along x, along y, along z)."""
        return matrix.reshape(-1, *self.num_pools)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        pools = self._pools(out_value)
        for k, values in enumerate(self._places(in_value)):
            if k == 0:
                tensor.copy(pools, values)
            else:
                _larger(pools, values)

    def backprop(self, args: BackpropArgs) -> None:
        largest, derivs = self._pools(args.out_value), self._pools(args.out_deriv)
        places = zip(self._places(args.in_value), self._places(args.in_deriv), strict=True)
        for values, in_derivs in places:
            _route(in_derivs, values, largest, derivs)
