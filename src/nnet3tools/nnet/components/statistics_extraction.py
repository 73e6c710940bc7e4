"""StatisticsExtractionComponent: counts, sums and sums of squares over periods of frames.

Kaldi's nnet-general-component.cc. Rows are ordered by n, x, t, so that each period is a range of
rows. StatisticsPoolingComponent computes means and standard deviations from them.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import RequestError
from nnet3tools.nnet.components.array_fields import Vector
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    PrecomputedIndexes,
    Properties,
)
from nnet3tools.nnet.components.fields import Flag, Int, IntPairs, IntVector
from nnet3tools.nnet.components.registry import register, register_precomputed
from nnet3tools.nnet.components.time_windows import at_shifts, nxt_order, used_if_any, window_ranges
from nnet3tools.nnet.indexes import BoolArray, IndexArray, IntArray

_no_rows = np.empty(0, np.int32)

_square = tensor.element("_1 = _2 * _2")
_add_twice_product = tensor.element("_1 += 2 * _2 * _3")
_add = tensor.element("_1 += _2")


@register_precomputed
class ExtractionIndexes(PrecomputedIndexes):
    """Precomputed indexes: input row range and count of each output, output row of each input."""

    type_name: ClassVar[str] = "StatisticsExtractionComponentPrecomputedIndexes"

    forward = IntPairs("<ForwardIndexes>")
    counts = Vector("<Counts>", trainable=False)
    backward = IntVector("<BackwardIndexes>")

    def problem(self) -> str | None:
        good = len(self.counts) == len(self.forward)
        return None if good else "as many counts as row ranges expected"

    def fits(self, component: Component, num_inputs: int, num_outputs: int) -> bool:
        right = len(self.forward) == num_outputs and int(self.forward.max(initial=0)) <= num_inputs
        if len(self.backward):
            right = right and len(self.backward) == num_inputs
            right = right and int(self.backward.max(initial=0)) < num_outputs
        return right


class SumsOfRanges(Component):
    """Base class of components that sum ranges of input rows; a sequence's rows are adjacent."""

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Number of operations for sums over row ranges, without the squares."""
        forward = getattr(indexes, "forward", None)
        summed = rows if forward is None else int((forward[:, 1] - forward[:, 0]).sum())
        return summed * self.output_dim

    def reorder_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray
    ) -> tuple[IndexArray, IndexArray]:
        return nxt_order(input_indexes), nxt_order(output_indexes)


@register
class StatisticsExtractionComponent(SumsOfRanges):
    """Outputs count, sum and (if `include_variance`) sum of squares over periods of frames."""

    FORMULA = (
        "y(t) = (number of frames, sum of x(s), sum of x(s)^2) over s in [t, t + output-period)"
    )
    PROPERTIES = Properties.PROPAGATE_ADDS

    input_dim = Int("<InputDim>", "input-dim", positive=True)
    input_period = Int("<InputPeriod>", "input-period", 1, positive=True)
    output_period = Int("<OutputPeriod>", "output-period", 1, positive=True)
    include_variance = Flag("<IncludeVarinance>", "include-variance", True)  # Kaldi's spelling

    @property
    def output_dim(self) -> int:
        return 1 + self.input_dim * (2 if self.include_variance else 1)

    @property
    def properties(self) -> Properties:
        needs_input = self.include_variance
        return self.FLAGS | Properties.BACKPROP_NEEDS_INPUT if needs_input else self.FLAGS

    def problem(self) -> str | None:
        good = self.output_period % self.input_period == 0
        return None if good else "output-period must be a multiple of input-period"

    # -- running

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        assert isinstance(indexes, ExtractionIndexes)
        dim = self.input_dim
        _add(out_value[:, :1], tensor.constant(indexes.counts, like=out_value)[:, None])
        tensor.add_row_ranges(out_value[:, 1 : dim + 1], in_value, indexes.forward)
        if self.include_variance:
            with tensor.scratch(in_value.shape, like=in_value) as squares:
                _square(squares, in_value)
                tensor.add_row_ranges(out_value[:, dim + 1 :], squares, indexes.forward)

    def backprop(self, args: BackpropArgs) -> None:
        """Compute the input derivative from the derivatives at sums and sums of squares."""
        assert isinstance(args.indexes, ExtractionIndexes)
        dim = self.input_dim
        tensor.copy_rows(args.in_deriv, args.out_deriv[:, 1 : dim + 1], args.indexes.backward)
        if self.include_variance:
            with tensor.scratch(args.in_deriv.shape, like=args.in_deriv) as variance_deriv:
                tensor.copy_rows(
                    variance_deriv, args.out_deriv[:, dim + 1 :], args.indexes.backward
                )
                _add_twice_product(args.in_deriv, variance_deriv, args.in_value)

    # -- indexes

    def _periods(self, indexes: IndexArray) -> IntArray:
        """For each Index, the first time of its period of `output_period` frames."""
        return indexes[:, 1] // self.output_period * self.output_period

    def input_indexes(self, output_indexes: IndexArray) -> tuple[IndexArray, IntArray]:
        starts = output_indexes.copy()
        starts[:, 1] = self._periods(output_indexes)
        shifts = np.arange(0, self.output_period, self.input_period, dtype=np.int32)
        return at_shifts(starts, shifts)

    def computable(
        self, outputs: IndexArray, inputs: IndexArray, offsets: IntArray, available: BoolArray
    ) -> tuple[BoolArray, BoolArray]:
        """Flags: outputs, (N,), with a frame in their period, and inputs, (M,), that they use.

        `available` (M,) flags existing inputs; output i may use inputs[offsets[i]:offsets[i + 1]].
        """
        return used_if_any(available, self.output_period // self.input_period)

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> ExtractionIndexes:
        starts = self._periods(output_indexes)
        last = starts + (self.output_period - self.input_period)
        forward = window_ranges(
            self.type_name, input_indexes, output_indexes, starts, last, self.input_period
        )
        counts = forward[:, 1] - forward[:, 0]
        backward = np.full(len(input_indexes), -1, np.int32)
        rows = np.repeat(forward[:, 0] - np.cumsum(counts) + counts, counts)
        rows += np.arange(len(rows), dtype=rows.dtype)
        backward[rows] = np.repeat(np.arange(len(forward), dtype=np.int32), counts)
        if len(rows) != len(input_indexes) or (backward < 0).any():
            raise RequestError(
                f"{self.type_name} with output-period={self.output_period} cannot order its rows: "
                "each input must belong to the period of exactly one output"
            )
        return ExtractionIndexes(
            forward=forward,
            counts=counts.astype(np.float32),
            backward=backward if need_backprop else _no_rows,
        )
