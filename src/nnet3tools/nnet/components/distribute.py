"""DistributeComponent: cut each input row into blocks and make them rows of their own.

Kaldi's nnet-general-component.cc. With b = input_dim / output_dim blocks, the output at (n, t, x)
is block x mod b of the input at (n, t, x // b).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import RequestError
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    PrecomputedIndexes,
    Properties,
)
from nnet3tools.nnet.components.common import get_positive, read_field, require, write_field
from nnet3tools.nnet.components.registry import register, register_precomputed
from nnet3tools.nnet.indexes import IndexArray, IndexSet, IntArray

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["DistributeComponent", "DistributeIndexes"]


@register_precomputed
class DistributeIndexes(PrecomputedIndexes):
    """Input row and first input column of each output row, (N, 2)."""

    type_name: ClassVar[str] = "DistributeComponentPrecomputedIndexes"

    def __init__(self, pairs: IntArray) -> None:
        self.pairs = pairs

    def fits(self, component: Component, num_inputs: int, num_outputs: int) -> bool:
        last_row, last_col = self.pairs.max(axis=0, initial=0).tolist()
        return (
            len(self.pairs) == num_outputs
            and last_row < num_inputs
            and last_col + component.output_dim <= component.input_dim
        )

    @classmethod
    def read(cls, reader: Reader) -> Self:
        pairs = read_field(reader, "<Pairs>", reader.read_int_pairs)
        reader.expect_token(f"</{cls.type_name}>")
        require(reader, not (pairs < 0).any(), f"negative row or column in <{cls.type_name}>")
        return cls(pairs)

    def write(self, writer: Writer) -> None:
        writer.write_token(f"<{self.type_name}>")
        writer.write_token("<Pairs>")
        writer.write_int_pairs(self.pairs)
        writer.write_token(f"</{self.type_name}>")


@register
class DistributeComponent(Component):
    """Blocks of `output_dim` columns, spread over x."""

    def __init__(self, input_dim: int, output_dim: int) -> None:
        self._input_dim, self._output_dim = input_dim, output_dim

    @property
    def input_dim(self) -> int:
        return self._input_dim

    @property
    def output_dim(self) -> int:
        return self._output_dim

    @property
    def num_blocks(self) -> int:
        """Output rows that one input row feeds."""
        return self._input_dim // self._output_dim

    @property
    def properties(self) -> Properties:
        return Properties(0)

    # -- creation and files

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        self = cls(get_positive(line, "input-dim"), get_positive(line, "output-dim"))
        if self._input_dim % self._output_dim != 0:
            raise line.error("input-dim must be a multiple of output-dim")
        return self

    @classmethod
    def read(cls, reader: Reader) -> Self:
        input_dim = read_field(reader, "<InputDim>", reader.read_int32)
        output_dim = read_field(reader, "<OutputDim>", reader.read_int32)
        reader.expect_token(f"</{cls.type_name}>")
        good = min(input_dim, output_dim) > 0 and input_dim % output_dim == 0
        require(reader, good, f"{cls.type_name}: bad dimensions {input_dim}, {output_dim}")
        return cls(input_dim, output_dim)

    def write(self, writer: Writer) -> None:
        writer.write_token(f"<{self.type_name}>")
        write_field(writer, "<InputDim>", self._input_dim)
        write_field(writer, "<OutputDim>", self._output_dim)
        writer.write_token(f"</{self.type_name}>")

    # -- running

    def _blocks(self, matrix: Array) -> list[Array]:
        """Views of the blocks of columns."""
        dim = self._output_dim
        return [matrix[:, i * dim : (i + 1) * dim] for i in range(self.num_blocks)]

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Only moves."""
        return 0

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        assert isinstance(indexes, DistributeIndexes)
        rows, columns = indexes.pairs[:, 0], indexes.pairs[:, 1]
        tensor.copy_rows_multi(out_value, self._blocks(in_value), columns // self._output_dim, rows)

    def backprop(self, args: BackpropArgs) -> None:
        assert isinstance(args.indexes, DistributeIndexes)
        if args.in_deriv is None:
            return
        if args.out_deriv.shape[0] != args.in_deriv.shape[0] * self.num_blocks:
            tensor.fill(args.in_deriv, 0.0)  # some blocks went nowhere
        rows, columns = args.indexes.pairs[:, 0], args.indexes.pairs[:, 1]
        blocks = self._blocks(args.in_deriv)
        tensor.copy_to_rows_multi(args.out_deriv, blocks, columns // self._output_dim, rows)

    # -- indexes

    def input_indexes(self, output_indexes: IndexArray) -> tuple[IndexArray, IntArray]:
        inputs = output_indexes.copy()
        inputs[:, 2] //= self.num_blocks
        return inputs, np.arange(len(inputs) + 1, dtype=np.int32)

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> DistributeIndexes:
        rows = IndexSet(input_indexes).find(self.input_indexes(output_indexes)[0])
        if (rows < 0).any():
            n, t, x = output_indexes[int(np.flatnonzero(rows < 0)[0])]
            raise RequestError(
                f"{self.type_name}: no input for output (n={n}, t={t}, x={x}), which needs x="
                f"{x // self.num_blocks}"
            )
        blocks = output_indexes[:, 2] % self.num_blocks
        return DistributeIndexes(np.stack([rows, blocks * self._output_dim], axis=1))
