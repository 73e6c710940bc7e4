"""GeneralDropoutComponent: dropout with masks shared by the rows of a sequence.

Kaldi's nnet-general-component.cc. The backward pass uses the same mask, which is the memo. In test
mode the component does nothing.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    DropoutBase,
    Indexes,
    Memo,
    PrecomputedIndexes,
    Properties,
)
from nnet3tools.nnet.components.common import as_blocks, division_problem
from nnet3tools.nnet.components.fields import Int, IntVector, Mark, Proportion
from nnet3tools.nnet.components.registry import register, register_precomputed
from nnet3tools.nnet.indexes import IndexArray

_multiply = tensor.element("_1 = _1 * _2")
_keep_some = tensor.element("_1 = where(_1 > _2, 1 / (1 - _2), 0)")
_spread = tensor.element("_1 = 4 * _2 * _1 + 1 - 2 * _2")
# The original position of columns (_1) before half of the circle was reversed at start (_2); _3 is
# dim.
_turn_half = tensor.element(
    "s = floor(_2 * _3); gap = _1 - s; d = where(gap < 0, gap + _3, gap); "
    "to = s + where(d < _5 or (d > _4 - _5 and d <= _4), _4 - d, d); "
    "_1 = where(to >= _3, to - _3, to)"
)
# 0 if a column (_1) is in the band that begins at _2 and has width _3, both in (0, 1]; else 1.
_outside_band = tensor.element(
    "gap = _1 - floor(_2 * _4); _1 = where(where(gap < 0, gap + _4, gap) >= floor(_3 * _5), 1, 0)"
)


@register_precomputed
class DropoutIndexes(PrecomputedIndexes):
    """Precomputed indexes: the mask row of each block of each row, and the number of mask rows."""

    type_name: ClassVar[str] = "GeneralDropoutComponentPrecomputedIndexes"

    num_mask_rows = Int("<NumMaskRows>")
    rows = IntVector("<Indexes>")

    def problem(self) -> str | None:
        good = ((self.rows >= 0) & (self.rows < self.num_mask_rows)).all()
        return None if good else "a mask row does not exist"


class _Regions(Int):
    """Field for the number of zeroed regions; info lines show it only in SpecAugment mode."""

    def info(self, owner: GeneralDropoutComponent) -> str:
        return f"{self.key}={owner.specaugment_max_regions}" if owner.uses_bands else ""


@register
class GeneralDropoutComponent(DropoutBase):
    """Dropout with one mask per sequence, or per `time_period` frames of it.

    Blocks of `block_dim` columns share a mask. For a dropout proportion p its elements are 0 or
    1 / (1 - p), or if `continuous` uniform in [1 - 2p, 1 + 2p]. With `specaugment_max_proportion`
    it zeroes bands of columns.
    """

    FORMULA = "y = m x; m is 0 with probability p, else 1 / (1 - p); p is dropout-proportion"
    PROPERTIES = Properties.IN_PLACE | Properties.USES_MEMO
    INFO = (
        "dim block_dim dropout_proportion continuous specaugment_max_proportion "
        "specaugment_max_regions time_period"
    )

    dim = Int("<Dim>", "dim", positive=True)
    block_dim = Int("<BlockDim>", "block-dim", lambda c: c.dim, positive=True)
    time_period = Int("<TimePeriod>", "time-period", 0, show_default=False)
    dropout_proportion = Proportion("<DropoutProportion>", "dropout-proportion", 0.5)
    specaugment_max_proportion = Proportion(
        "<SpecAugmentMaxProportion>", "specaugment-max-proportion", 0.0, omit=True
    )
    specaugment_max_regions = _Regions(
        "<SpecAugmentMaxRegions>",
        "specaugment-max-regions",
        1,
        omit=True,
        when=lambda c: c.uses_bands,
    )
    test_mode = Mark("<TestMode>", "test-mode")
    continuous = Mark("<Continuous>", "continuous")

    @property
    def properties(self) -> Properties:
        return self.FLAGS if self.block_dim == self.dim else self.FLAGS | Properties.CONTIGUOUS

    @property
    def uses_bands(self) -> bool:
        """Whether the component zeroes bands of columns, as in SpecAugment."""
        return self.specaugment_max_proportion != 0.0

    def problem(self) -> str | None:
        if problem := division_problem("block-dim", self.block_dim, "dim", self.dim):
            return problem
        if self.time_period < 0:
            return f"time-period must not be negative, found {self.time_period}"
        if self.uses_bands and (self.continuous or self.specaugment_max_regions < 1):
            return (
                "with specaugment-max-proportion, specaugment-max-regions must be positive and "
                "continuous false"
            )
        return None

    @property
    def average_scale(self) -> float:
        return 1.0

    # -- running

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        """Apply a new mask, if any; the memo is the mask (num_mask_rows, block_dim), or None."""
        assert isinstance(indexes, DropoutIndexes)
        if out_value is not in_value:
            tensor.copy(out_value, in_value)
        if self.test_mode or (self.dropout_proportion == 0.0 and not self.uses_bands):
            return None
        mask = self._draw_mask(indexes.num_mask_rows, out_value)
        self._apply(mask, indexes, out_value)
        return mask

    def backprop(self, args: BackpropArgs) -> None:
        assert isinstance(args.indexes, DropoutIndexes)
        if args.in_deriv is not args.out_deriv:
            tensor.copy(args.in_deriv, args.out_deriv)
        if args.memo is not None:
            self._apply(args.memo, args.indexes, args.in_deriv)

    def _apply(self, mask: Array, indexes: DropoutIndexes, matrix: Array) -> None:
        """Multiply block i of `matrix`, row by row, by mask row indexes.rows[i], in place."""
        rows = as_blocks(matrix, self.block_dim)
        if len(indexes.rows) != rows.shape[0]:
            raise ProgramError(f"dropout for {len(indexes.rows)} rows given {rows.shape[0]}")
        with tensor.scratch(rows.shape, like=matrix) as factors:
            tensor.copy_rows(factors, mask, indexes.rows)
            _multiply(rows, factors)

    def _draw_mask(self, num_rows: int, like: Array) -> Array:
        """Draw a mask with `num_rows` rows; its mean is 1 except in the SpecAugment mode."""
        mask = tensor.persistent_array((num_rows, self.block_dim), like=like)
        if self.uses_bands:
            self._draw_bands(mask)
            return mask
        tensor.random.uniform(mask)
        if self.continuous:
            _spread(mask, float(self.dropout_proportion))
        else:
            _keep_some(mask, float(self.dropout_proportion))
        return mask

    def _draw_bands(self, mask: Array) -> None:
        """Set each mask row to ones, with random bands of zeros, which may wrap around.

        As in Kaldi, one band is zeroed. Then a random half of the circle of columns is reversed,
        `specaugment_max_regions` - 1 times, which may split the band. The code undoes the reversals
        to find the original position of each column.
        """
        num_rows, dim = mask.shape
        most = int(dim * np.float32(self.specaugment_max_proportion) + 0.5)
        half, quarter = dim // 2, dim // 2 // 2
        columns = tensor.constant(np.arange(dim, dtype=np.float32), like=mask)
        with tensor.scratch((1 + self.specaugment_max_regions, num_rows), like=mask) as draws:
            tensor.random.uniform(draws)
            tensor.copy(mask, columns)
            for start in draws[:1:-1]:
                _turn_half(mask, start[:, None], dim, half, quarter)
            _outside_band(mask, draws[1][:, None], draws[0][:, None], dim, most + 1)

    # -- indexes

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> DropoutIndexes:
        """Assign a mask row to each row: one for each pair of n and period of t."""
        if not np.array_equal(input_indexes, output_indexes):
            raise ProgramError(f"{self.type_name} given outputs other than its inputs")
        keys = input_indexes[:, 0].astype(np.int64) << 32
        if self.time_period > 0:
            keys += input_indexes[:, 1] // self.time_period
        _, first, rows = np.unique(keys, return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.int32)
        rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
        blocks = self.dim // self.block_dim
        # Kaldi allocates a mask row per block, too, and then lets all blocks share the first ones.
        return DropoutIndexes(
            num_mask_rows=len(first) * blocks, rows=np.repeat(rank[rows.ravel()], blocks)
        )
