"""Components that reduce groups of neighbouring columns: p-norm (p = 2) and sum.

File fields: Kaldi's PnormComponent and SumGroupComponent (nnet-simple-component.cc).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

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
from nnet3tools.nnet.components.common import (
    expect_either,
    get_positive,
    read_field,
    require,
    write_field,
)
from nnet3tools.nnet.components.registry import register
from nnet3tools.tensor.groups import group_norm, group_norm_backprop, sum_column_ranges

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["PnormComponent", "SumGroupComponent"]


@register
class PnormComponent(Component):
    """y_j = Euclidean norm of the j'th group of input columns (Zhang et al. 2014)."""

    def __init__(self, input_dim: int, output_dim: int) -> None:
        self._input_dim, self._output_dim = input_dim, output_dim

    @property
    def input_dim(self) -> int:
        return self._input_dim

    @property
    def output_dim(self) -> int:
        return self._output_dim

    @property
    def properties(self) -> Properties:
        return (
            Properties.SIMPLE | Properties.BACKPROP_NEEDS_INPUT | Properties.BACKPROP_NEEDS_OUTPUT
        )

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        input_dim, output_dim = get_positive(line, "input-dim"), get_positive(line, "output-dim")
        if input_dim % output_dim != 0:
            raise line.error(f"input-dim must be a multiple of output-dim, found {input_dim}")
        return cls(input_dim, output_dim)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        input_dim = read_field(reader, "<InputDim>", reader.read_int32)
        output_dim = read_field(reader, "<OutputDim>", reader.read_int32)
        require(
            reader,
            output_dim > 0 and input_dim > 0 and input_dim % output_dim == 0,
            f"impossible p-norm from {input_dim} to {output_dim} columns",
        )
        reader.expect_token("</PnormComponent>")
        return cls(input_dim, output_dim)

    def write(self, writer: Writer) -> None:
        writer.write_token("<PnormComponent>")
        write_field(writer, "<InputDim>", self.input_dim)
        write_field(writer, "<OutputDim>", self.output_dim)
        writer.write_token("</PnormComponent>")

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Power, sum, and the scaling or root."""
        return 3 * rows * self.input_dim

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        group_norm(out_value, in_value)

    def backprop(self, args: BackpropArgs) -> None:
        if args.in_deriv is not None:
            group_norm_backprop(args.in_deriv, args.in_value, args.out_value, args.out_deriv)


@register
class SumGroupComponent(Component):
    """y_j = sum of the j'th group of input columns; `sizes` (output_dim,) are the groups' sizes."""

    def __init__(self, sizes: np.ndarray) -> None:
        self.sizes = np.asarray(sizes, np.int32)
        ends = np.cumsum(self.sizes, dtype=np.int32)
        self.ranges = np.stack([ends - self.sizes, ends], axis=1)
        """(output_dim, 2): begin and end of each group."""
        self.group_of_column = np.repeat(np.arange(len(self.sizes), dtype=np.int32), self.sizes)

    @property
    def input_dim(self) -> int:
        return len(self.group_of_column)

    @property
    def output_dim(self) -> int:
        return len(self.sizes)

    @property
    def properties(self) -> Properties:
        return Properties.SIMPLE

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        """From the list sizes=, or groups of equal size from input-dim and output-dim."""
        if "sizes" in line:
            sizes = np.asarray(line.get_int_list("sizes"), np.int32)
            if sizes.size == 0 or (sizes <= 0).any():
                raise line.error("sizes must be positive numbers")
            return cls(sizes)
        input_dim, output_dim = get_positive(line, "input-dim"), get_positive(line, "output-dim")
        if input_dim % output_dim != 0:
            raise line.error(f"input-dim must be a multiple of output-dim, found {input_dim}")
        return cls(np.full(output_dim, input_dim // output_dim, np.int32))

    @classmethod
    def read(cls, reader: Reader) -> Self:
        sizes = read_field(reader, "<Sizes>", reader.read_int32_vector)
        positive = sizes.size > 0 and bool((sizes > 0).all())
        require(reader, positive, "<Sizes> must be positive numbers")
        require(reader, int(sizes.sum(dtype=np.int64)) < 1 << 24, "<Sizes> are too large")
        expect_either(reader, "</SumGroupComponent>", "<SumGroupComponent>")
        return cls(sizes)

    def write(self, writer: Writer) -> None:
        writer.write_token("<SumGroupComponent>")
        writer.write_token("<Sizes>")
        writer.write_int32_vector(self.sizes)
        writer.write_token("</SumGroupComponent>")

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """One for each input."""
        return rows * self.input_dim

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        sum_column_ranges(out_value, in_value, self.ranges)

    def backprop(self, args: BackpropArgs) -> None:
        if args.in_deriv is not None:
            tensor.copy_cols(args.in_deriv, args.out_deriv, self.group_of_column)
