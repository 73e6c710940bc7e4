"""Components that reduce groups of adjacent columns: p-norm (p = 2) and sum.

File fields: Kaldi's PnormComponent and SumGroupComponent (nnet-simple-component.cc).
"""

from __future__ import annotations

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
from nnet3tools.nnet.components.common import division_problem, get_positive
from nnet3tools.nnet.components.fields import Int, IntVector
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.config import ConfigLine
from nnet3tools.tensor.operators.groups import group_norm, group_norm_backprop, sum_column_ranges

_MAX_INPUT_DIM = 1 << 24


@register
class PnormComponent(Component):
    """The Euclidean norms of equal groups of input columns (Zhang et al. 2014)."""

    FORMULA = "y_i = sqrt(sum of x_j^2 over the columns j of group i)"
    PROPERTIES = Properties.BACKPROP_NEEDS_INPUT | Properties.BACKPROP_NEEDS_OUTPUT
    flops_per_input = 3  # power, sum, scaling or root

    input_dim = Int("<InputDim>", "input-dim", positive=True)
    output_dim = Int("<OutputDim>", "output-dim", positive=True)

    def problem(self) -> str | None:
        return division_problem("output-dim", self.output_dim, "input-dim", self.input_dim)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        group_norm(out_value, in_value)

    def backprop(self, args: BackpropArgs) -> None:
        group_norm_backprop(args.in_deriv, args.in_value, args.out_value, args.out_deriv)


@register
class SumGroupComponent(Component):
    """Sum groups of adjacent input columns; `sizes` (output_dim,) are the numbers of columns."""

    FORMULA = "y_i = sum of x_j over the columns j of group i"
    KEYS = "[sizes] [input-dim] [output-dim]"
    flops_per_input = 1
    CLOSING_TOKENS = ("</{}>", "<{}>")

    sizes = IntVector("<Sizes>", "sizes", None)

    def init_from_config(self, line: ConfigLine) -> None:
        """Read group sizes from sizes=, or make equal groups from input-dim and output-dim."""
        if "sizes" in line:
            return
        input_dim, output_dim = get_positive(line, "input-dim"), get_positive(line, "output-dim")
        problem = division_problem("output-dim", output_dim, "input-dim", input_dim)
        if problem is not None:
            raise line.error(problem)
        self.sizes = np.full(output_dim, input_dim // output_dim, np.int32)

    def problem(self) -> str | None:
        if self.sizes.size == 0 or (self.sizes <= 0).any():
            return "sizes must be positive numbers"
        too_large = self.sizes.sum(dtype=np.int64) >= _MAX_INPUT_DIM
        return f"sizes must add up to less than {_MAX_INPUT_DIM}" if too_large else None

    @property
    def input_dim(self) -> int:
        return int(self.sizes.sum())

    @property
    def output_dim(self) -> int:
        return len(self.sizes)

    @cached_property
    def ranges(self) -> np.ndarray:
        """For each group, its first column and the column after its last; shape (output_dim, 2)."""
        ends = np.cumsum(self.sizes, dtype=np.int32)
        return np.stack([ends - self.sizes, ends], axis=1)

    @cached_property
    def group_of_column(self) -> np.ndarray:
        """The group that each input column belongs to, (input_dim,)."""
        return np.repeat(np.arange(len(self.sizes), dtype=np.int32), self.sizes)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        sum_column_ranges(out_value, in_value, self.ranges)

    def backprop(self, args: BackpropArgs) -> None:
        tensor.copy_cols(args.in_deriv, args.out_deriv, self.group_of_column)
