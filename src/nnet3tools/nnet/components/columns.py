"""Components that permute, multiply or sum blocks of columns.

Formulas and file fields: Kaldi's ElementwiseProductComponent, SumBlockComponent and
PermuteComponent (nnet-simple-component.cc).
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
from nnet3tools.nnet.components.common import division_problem
from nnet3tools.nnet.components.fields import Float, Int, IntVector
from nnet3tools.nnet.components.registry import register

_multiply = tensor.element("_1 = _2 * _3")


class _BlockComponent(Component):
    """Base class of components whose input columns are blocks as wide as the output."""

    flops_per_input = 1

    input_dim = Int("<InputDim>", "input-dim", positive=True)
    output_dim = Int("<OutputDim>", "output-dim", positive=True)

    def problem(self) -> str | None:
        return division_problem("output-dim", self.output_dim, "input-dim", self.input_dim)

    def blocks(self, matrix: Array) -> list[Array]:
        """Views of the blocks of an input matrix or its derivative."""
        dim = self.output_dim
        return [matrix[:, k : k + dim] for k in range(0, matrix.shape[1], dim)]


@register
class ElementwiseProductComponent(_BlockComponent):
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
class SumBlockComponent(_BlockComponent):
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
