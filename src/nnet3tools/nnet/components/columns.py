"""Components that permute, multiply or sum blocks of columns, or reduce groups of them.

Formulas and file fields: Kaldi's ElementwiseProductComponent, SumBlockComponent, PermuteComponent,
PnormComponent (p = 2) and SumGroupComponent (nnet-simple-component.cc).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from nnet3tools import tensor
from nnet3tools.io.stream import Reader
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    Properties,
)
from nnet3tools.nnet.components.common import division_problem, get_positive
from nnet3tools.nnet.components.fields import Float, Int, IntVector
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.config import ConfigLine
from nnet3tools.tensor.operators.groups import group_norm, group_norm_backprop, sum_column_ranges

_multiply = tensor.element("_1 = _2 * _3")


class BlockComponent(Component):
    """Base class of components whose input has several times as many columns as the output."""

    flops_per_input = 1

    input_dim = Int("<InputDim>", "input-dim", positive=True)
    output_dim = Int("<OutputDim>", "output-dim", positive=True)

    def problem(self) -> str | None:
        return division_problem("output-dim", self.output_dim, "input-dim", self.input_dim)

    def blocks(self, matrix: Array) -> list[Array]:
        """Views of the equal blocks of columns of an input matrix or its derivative."""
        dim = self.output_dim
        return [matrix[:, k : k + dim] for k in range(0, matrix.shape[1], dim)]


@register
class ElementwiseProductComponent(BlockComponent):
    """Multiplies the blocks of the input, each as wide as the output, element by element."""

    FORMULA = "y = x[block 1] x[block 2] ... x[block n]"
    PROPERTIES = Properties.BACKPROP_NEEDS_INPUT

    def problem(self) -> str | None:
        single = self.input_dim == self.output_dim
        return "input-dim must be larger than output-dim" if single else super().problem()

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        first, second, *rest = self.blocks(in_value)
        _multiply(out_value, first, second)
        for block in rest:
            _multiply(out_value, out_value, block)

    def backprop(self, args: BackpropArgs) -> None:
        values = self.blocks(args.in_value)
        for k, deriv in enumerate(self.blocks(args.in_deriv)):
            source = args.out_deriv
            for value in values[:k] + values[k + 1 :]:
                _multiply(deriv, source, value)
                source = deriv


@register
class SumBlockComponent(BlockComponent):
    """Adds the blocks of the input, each as wide as the output; multiplies by `scale`."""

    FORMULA = "y = scale (x[block 1] + x[block 2] + ... + x[block n])"
    PROPERTIES = Properties.PROPAGATE_ADDS | Properties.BACKPROP_ADDS
    INFO = Component.INFO + " block_scale"

    block_scale = Float("<Scale>", "scale", 1.0)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        for block in self.blocks(in_value):
            tensor.add(out_value, block, alpha=self.block_scale)

    def backprop(self, args: BackpropArgs) -> None:
        for block in self.blocks(args.in_deriv):
            tensor.add(block, args.out_deriv, alpha=self.block_scale)


class _ColumnMap(IntVector):
    """Field for a list of column numbers, which old models store as floats."""

    def read_value(self, reader: Reader) -> np.ndarray:
        if reader.binary and reader.peek_byte() == ord("F"):
            return np.floor(reader.read_vector() + 0.5).astype(np.int32)
        return super().read_value(reader)


@register
class PermuteComponent(Component):
    """Column j of the output is column `column_map[j]` of the input."""

    FORMULA = "y_j = x_i with i = column-map[j]"
    flops_per_input = 0  # moves only

    column_map = _ColumnMap("<ColumnMap>", "column-map")

    def problem(self) -> str | None:
        columns = np.arange(len(self.column_map))
        fits = len(columns) > 0 and np.array_equal(np.sort(self.column_map), columns)
        return None if fits else "column-map is not a permutation of 0, 1, 2..."

    @property
    def dim(self) -> int:
        """Number of columns."""
        return len(self.column_map)

    @cached_property
    def reverse_column_map(self) -> np.ndarray:
        """The inverse of `column_map`: output column of each input column."""
        return np.argsort(self.column_map).astype(np.int32)

    def info(self) -> str:
        shown = "".join(f"{c} " for c in self.column_map[:5])
        more = "... " if len(self.column_map) > 5 else ""
        return f"{self.type_name}, dim={self.input_dim} , column-map=[ {shown}{more}]"

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        tensor.copy_cols(out_value, in_value, self.column_map)

    def backprop(self, args: BackpropArgs) -> None:
        tensor.copy_cols(args.in_deriv, args.out_deriv, self.reverse_column_map)


_MAX_INPUT_DIM = 1 << 24


@register
class PnormComponent(BlockComponent):
    """The Euclidean norms of equal groups of input columns (Zhang et al. 2014)."""

    FORMULA = "y_i = sqrt(sum of x_j^2 over the columns j of group i)"
    PROPERTIES = Properties.BACKPROP_NEEDS_INPUT | Properties.BACKPROP_NEEDS_OUTPUT
    flops_per_input = 3  # power, sum, scaling or root

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
