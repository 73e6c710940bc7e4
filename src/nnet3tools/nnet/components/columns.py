"""Components that rearrange, multiply or sum blocks of columns.

Formulas and file fields: Kaldi's ElementwiseProductComponent, SumBlockComponent and
PermuteComponent (nnet-simple-component.cc).
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
from nnet3tools.nnet.components.common import get_positive, read_field, require, write_field
from nnet3tools.nnet.components.registry import register

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["ElementwiseProductComponent", "PermuteComponent", "SumBlockComponent"]

_multiply = tensor.element("_1 = _2 * _3")


class _BlockComponent(Component):
    """A component whose input and output dimension are in a whole-number ratio."""

    def __init__(self, input_dim: int, output_dim: int) -> None:
        self._input_dim, self._output_dim = input_dim, output_dim

    @property
    def input_dim(self) -> int:
        return self._input_dim

    @property
    def output_dim(self) -> int:
        return self._output_dim

    def blocks(self, matrix: Array, dim: int) -> list[Array]:
        """The matrix cut into blocks of `dim` columns."""
        return [matrix[:, k : k + dim] for k in range(0, matrix.shape[1], dim)]

    def _write_dims(self, writer: Writer) -> None:
        writer.write_token(f"<{self.type_name}>")
        write_field(writer, "<InputDim>", self.input_dim)
        write_field(writer, "<OutputDim>", self.output_dim)


@register
class ElementwiseProductComponent(_BlockComponent):
    """y = the product of the blocks that the input is divided into."""

    @property
    def properties(self) -> Properties:
        return Properties.SIMPLE | Properties.BACKPROP_NEEDS_INPUT

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        component = cls(get_positive(line, "input-dim"), get_positive(line, "output-dim"))
        if problem := component._problem():
            raise line.error(problem)
        return component

    def _problem(self) -> str | None:
        fits = self.input_dim > self.output_dim > 0 and self.input_dim % self.output_dim == 0
        return None if fits else "input-dim must be a multiple of output-dim, and larger"

    @classmethod
    def read(cls, reader: Reader) -> Self:
        component = cls(
            read_field(reader, "<InputDim>", reader.read_int32),
            read_field(reader, "<OutputDim>", reader.read_int32),
        )
        require(reader, component._problem() is None, component._problem() or "")
        reader.expect_token(f"</{cls.type_name}>")
        return component

    def write(self, writer: Writer) -> None:
        self._write_dims(writer)
        writer.write_token(f"</{self.type_name}>")

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """One for each input."""
        return rows * self.input_dim

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        first, second, *rest = self.blocks(in_value, self.output_dim)
        _multiply(out_value, first, second)
        for block in rest:
            _multiply(out_value, out_value, block)

    def backprop(self, args: BackpropArgs) -> None:
        if args.in_deriv is None:
            return
        values = self.blocks(args.in_value, self.output_dim)
        for k, deriv in enumerate(self.blocks(args.in_deriv, self.output_dim)):
            source = args.out_deriv
            for value in values[:k] + values[k + 1 :]:
                _multiply(deriv, source, value)
                source = deriv


@register
class SumBlockComponent(_BlockComponent):
    """y = scale times the sum of the blocks that the input is divided into."""

    def __init__(self, input_dim: int, output_dim: int, scale: float = 1.0) -> None:
        super().__init__(input_dim, output_dim)
        self.block_scale = scale

    @property
    def properties(self) -> Properties:
        return Properties.SIMPLE | Properties.PROPAGATE_ADDS | Properties.BACKPROP_ADDS

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        input_dim, output_dim = get_positive(line, "input-dim"), get_positive(line, "output-dim")
        if input_dim % output_dim != 0:
            raise line.error("input-dim must be a multiple of output-dim")
        return cls(input_dim, output_dim, line.get_float("scale", 1.0))

    @classmethod
    def read(cls, reader: Reader) -> Self:
        component = cls(
            read_field(reader, "<InputDim>", reader.read_int32),
            read_field(reader, "<OutputDim>", reader.read_int32),
            read_field(reader, "<Scale>", reader.read_float),
        )
        output_dim = component.output_dim
        fits = output_dim > 0 and component.input_dim % output_dim == 0
        require(reader, fits, "<InputDim> must be a multiple of <OutputDim>")
        reader.expect_token(f"</{cls.type_name}>")
        return component

    def write(self, writer: Writer) -> None:
        self._write_dims(writer)
        write_field(writer, "<Scale>", float(self.block_scale))
        writer.write_token(f"</{self.type_name}>")

    def info(self) -> str:
        return f"{super().info()}, scale={self.block_scale:g}"

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """One for each input."""
        return rows * self.input_dim

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        for block in self.blocks(in_value, self.output_dim):
            tensor.add(out_value, block, alpha=self.block_scale)

    def backprop(self, args: BackpropArgs) -> None:
        if args.in_deriv is not None:
            for block in self.blocks(args.in_deriv, self.output_dim):
                tensor.add(block, args.out_deriv, alpha=self.block_scale)


@register
class PermuteComponent(Component):
    """Column j of the output is column `column_map[j]` of the input."""

    def __init__(self, column_map: np.ndarray) -> None:
        self.column_map = np.asarray(column_map, np.int32)
        self.reverse_column_map = np.argsort(self.column_map).astype(np.int32)

    @property
    def input_dim(self) -> int:
        return len(self.column_map)

    @property
    def output_dim(self) -> int:
        return len(self.column_map)

    @property
    def properties(self) -> Properties:
        return Properties.SIMPLE

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        component = cls(np.array(line.get_int_list("column-map"), np.int32))
        if not component._is_permutation():
            raise line.error("column-map is not a permutation of 0, 1, 2...")
        return component

    def _is_permutation(self) -> bool:
        return len(self.column_map) > 0 and np.array_equal(
            np.sort(self.column_map), np.arange(len(self.column_map))
        )

    @classmethod
    def read(cls, reader: Reader) -> Self:
        reader.expect_token("<ColumnMap>")
        if reader.binary and reader.peek_byte() == ord("F"):  # old models: as numbers, not integers
            component = cls(np.floor(reader.read_vector() + 0.5))
        else:
            component = cls(reader.read_int32_vector())
        require(reader, component._is_permutation(), "<ColumnMap> is not a permutation")
        reader.expect_token(f"</{cls.type_name}>")
        return component

    def write(self, writer: Writer) -> None:
        writer.write_token(f"<{self.type_name}>")
        writer.write_token("<ColumnMap>")
        writer.write_int32_vector(self.column_map)
        writer.write_token(f"</{self.type_name}>")

    def info(self) -> str:
        shown = "".join(f"{c} " for c in self.column_map[:5])
        more = "... " if len(self.column_map) > 5 else ""
        return f"{self.type_name}, dim={self.input_dim} , column-map=[ {shown}{more}]"

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Only moves."""
        return 0

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        tensor.copy_cols(out_value, in_value, self.column_map)

    def backprop(self, args: BackpropArgs) -> None:
        if args.in_deriv is not None:
            tensor.copy_cols(args.in_deriv, args.out_deriv, self.reverse_column_map)
