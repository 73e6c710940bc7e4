"""DistributeComponent: splits each input row into blocks, which become separate rows.

Kaldi's nnet-general-component.cc. With b = input_dim / output_dim blocks, the output at (n, t, x)
is block x mod b of the input at (n, t, x // b).
"""

from __future__ import annotations

from typing import ClassVar

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
)
from nnet3tools.nnet.components.columns import BlockComponent
from nnet3tools.nnet.components.fields import IntPairs
from nnet3tools.nnet.components.registry import register, register_precomputed
from nnet3tools.nnet.indexes import IndexArray, IndexSet, IntArray


@register_precomputed
class DistributeIndexes(PrecomputedIndexes):
    """Precomputed indexes: input row and first input column of each output row, (N, 2)."""

    type_name: ClassVar[str] = "DistributeComponentPrecomputedIndexes"

    pairs = IntPairs("<Pairs>")

    def problem(self) -> str | None:
        return "a row or column is negative" if (self.pairs < 0).any() else None

    def fits(self, component: Component, num_inputs: int, num_outputs: int) -> bool:
        last_row, last_col = self.pairs.max(axis=0, initial=0).tolist()
        return (
            len(self.pairs) == num_outputs
            and last_row < num_inputs
            and last_col + component.output_dim <= component.input_dim
        )


@register
class DistributeComponent(BlockComponent):
    """Splits each row into blocks of `output_dim` columns, which become rows with x = 0, 1, ..."""

    FORMULA = "y(n, t, k) = x(n, t, 0)[block k]"
    flops_per_input = 0  # moves only

    @property
    def num_blocks(self) -> int:
        """Number of output rows per input row."""
        return self.input_dim // self.output_dim

    # -- running

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        assert isinstance(indexes, DistributeIndexes)
        rows, columns = indexes.pairs[:, 0], indexes.pairs[:, 1]
        tensor.copy_rows_multi(out_value, self.blocks(in_value), columns // self.output_dim, rows)

    def backprop(self, args: BackpropArgs) -> None:
        assert isinstance(args.indexes, DistributeIndexes)
        if args.out_deriv.shape[0] != args.in_deriv.shape[0] * self.num_blocks:
            tensor.fill(args.in_deriv, 0.0)  # some blocks have no output row
        rows, columns = args.indexes.pairs[:, 0], args.indexes.pairs[:, 1]
        blocks = self.blocks(args.in_deriv)
        tensor.copy_to_rows_multi(args.out_deriv, blocks, columns // self.output_dim, rows)

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
        return DistributeIndexes(pairs=np.stack([rows, blocks * self.output_dim], axis=1))
