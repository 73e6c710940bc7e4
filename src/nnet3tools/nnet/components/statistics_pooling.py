"""StatisticsPoolingComponent: mean and standard deviation over a window of extracted statistics.

Kaldi's nnet-general-component.cc. The input has the columns of StatisticsExtractionComponent:
count, sums and (for `output_stddevs`) sums of squares. Rows are ordered by n, x, t, so that each
window is a range of rows.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nnet3tools import tensor
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    PrecomputedIndexes,
    Properties,
)
from nnet3tools.nnet.components.fields import Flag, Float, Int, IntPairs
from nnet3tools.nnet.components.registry import register, register_precomputed
from nnet3tools.nnet.components.statistics_extraction import SumsOfRanges
from nnet3tools.nnet.components.time_windows import at_shifts, used_if_any, window_ranges
from nnet3tools.nnet.indexes import BoolArray, IndexArray, IntArray

_no_ranges = np.empty((0, 2), np.int32)

_divide = tensor.element("_1 = _1 / _2")
_log = tensor.element("_1 = log(_2)")
_exp = tensor.element("_1 = exp(_2)")
_to_stddev = tensor.element("_1 = sqrt(max(_1 - _2 * _2, _3))")
_through_stddev = tensor.element("_1 = 0.5 * _1 / _2")
_through_mean = tensor.element("_1 = _1 - 2 * _2 * _3")


_MAX_CONTEXT = 100_000
"""Limit on the frames in a window (ten times those of recipes); each output lists its frames."""


@register_precomputed
class PoolingIndexes(PrecomputedIndexes):
    """Precomputed indexes: input row range of each output, output row range of each input."""

    type_name: ClassVar[str] = "StatisticsPoolingComponentPrecomputedIndexes"

    forward = IntPairs("<ForwardIndexes>")
    backward = IntPairs("<BackwardIndexes>")

    def fits(self, component: Component, num_inputs: int, num_outputs: int) -> bool:
        right = len(self.forward) == num_outputs and int(self.forward.max(initial=0)) <= num_inputs
        if len(self.backward):
            right = right and len(self.backward) == num_inputs
            right = right and int(self.backward.max(initial=0)) <= num_outputs
        return right


@register
class StatisticsPoolingComponent(SumsOfRanges):
    """Outputs log counts, means and, if `output_stddevs`, standard deviations over a window.

    There are `num_log_count_features` log counts. The window at t is [t - left_context, t +
    right_context]; an output needs one frame in it. Outputs exist at multiples of `input_period`.
    """

    FORMULA = (
        "y(t) = (log counts, mean, sqrt(variance)) over s in [t - left-context, t + right-context]"
    )
    KEYS = "left-context right-context"
    PROPERTIES = Properties.BACKPROP_ADDS

    input_dim = Int("<InputDim>", "input-dim", positive=True)
    input_period = Int("<InputPeriod>", "input-period", 1, positive=True)
    left_context = Int("<LeftContext>", "left-context", -1)
    right_context = Int("<RightContext>", "right-context", -1)
    num_log_count_features = Int("<NumLogCountFeatures>", "num-log-count-features", 0)
    output_stddevs = Flag("<OutputStddevs>", "output-stddevs", False)
    variance_floor = Float("<VarianceFloor>", "variance-floor", 1.0e-10)

    @property
    def output_dim(self) -> int:
        return self.input_dim + self.num_log_count_features - 1

    @property
    def properties(self) -> Properties:
        """Property flags; backprop finds the counts in the output, or else needs the input."""
        flags = self.FLAGS
        if self.output_stddevs or self.num_log_count_features > 0:
            flags |= Properties.BACKPROP_NEEDS_OUTPUT
        if self.num_log_count_features == 0:
            flags |= Properties.BACKPROP_NEEDS_INPUT
        return flags

    def problem(self) -> str | None:
        left, right, period = self.left_context, self.right_context, self.input_period
        if self.num_log_count_features < 0:
            return "num-log-count-features must not be negative"
        if left < 0 or right < 0 or left + right == 0:
            return f"left-context and right-context must be >= 0, not both 0: found {left}, {right}"
        if left + right > _MAX_CONTEXT * period:
            return f"left-context and right-context may span {_MAX_CONTEXT} of the input's frames"
        if left % period or right % period:
            return f"left-context {left} and right-context {right} must be multiples of {period}"
        if not 0.0 < self.variance_floor < 1.0:
            return f"variance-floor must be between 0 and 1, found {self.variance_floor:g}"
        if self.output_stddevs and self.input_dim % 2 == 0:
            return f"output-stddevs needs an odd input-dim (2n + 1), found {self.input_dim}"
        return None

    # -- running

    def _mean_and_other(self, matrix: Array) -> tuple[Array, Array]:
        """Views of the first half of the columns (means) and of the other half (second moments)."""
        dim = (self.input_dim - 1) // 2
        return matrix[:, :dim], matrix[:, dim:]

    def _sum_counts(self, counts: Array, indexes: PoolingIndexes, in_value: Array) -> None:
        tensor.fill(counts, 0.0)
        tensor.add_row_ranges(counts, in_value[:, :1], indexes.forward)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        assert isinstance(indexes, PoolingIndexes)
        logs = self.num_log_count_features
        stats = out_value[:, logs:]
        tensor.fill(stats, 0.0)
        tensor.add_row_ranges(stats, in_value[:, 1:], indexes.forward)
        with tensor.scratch((out_value.shape[0], 1), like=out_value) as counts:
            self._sum_counts(counts, indexes, in_value)
            _divide(stats, counts)
            if logs > 0:
                _log(out_value[:, :logs], counts)
        if self.output_stddevs:
            mean, variance = self._mean_and_other(stats)
            _to_stddev(variance, mean, self.variance_floor)

    def backprop(self, args: BackpropArgs) -> None:
        """Compute the input derivative; like Kaldi's, it ignores the variance floor."""
        assert isinstance(args.indexes, PoolingIndexes)
        logs, shape = self.num_log_count_features, (args.out_deriv.shape[0], self.input_dim - 1)
        with (
            tensor.scratch(shape, like=args.out_deriv) as deriv,
            tensor.scratch((shape[0], 1), like=args.out_deriv) as counts,
        ):
            tensor.copy(deriv, args.out_deriv[:, logs:])
            if self.output_stddevs:
                mean_deriv, variance_deriv = self._mean_and_other(deriv)
                mean, stddev = self._mean_and_other(args.out_value[:, logs:])
                _through_stddev(variance_deriv, stddev)
                _through_mean(mean_deriv, mean, variance_deriv)
            if logs > 0:
                _exp(counts, args.out_value[:, :1])
            else:
                self._sum_counts(counts, args.indexes, args.in_value)
            _divide(deriv, counts)
            tensor.add_row_ranges(args.in_deriv[:, 1:], deriv, args.indexes.backward)

    # -- indexes

    def input_indexes(self, output_indexes: IndexArray) -> tuple[IndexArray, IntArray]:
        first, end = -self.left_context, self.right_context + 1
        shifts = np.arange(first, end, self.input_period, dtype=np.int32)
        return at_shifts(output_indexes, shifts)

    def computable(
        self, outputs: IndexArray, inputs: IndexArray, offsets: IntArray, available: BoolArray
    ) -> tuple[BoolArray, BoolArray]:
        """Flags: outputs, (N,), with a frame in their window, and inputs, (M,), that they use.

        `available` (M,) flags existing inputs; output i may use inputs[offsets[i]:offsets[i + 1]].
        """
        width = (self.left_context + self.right_context) // self.input_period + 1
        computable, used = used_if_any(available, width)
        on_grid = outputs[:, 1] % self.input_period == 0
        return computable & on_grid, used & np.repeat(on_grid, width)

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> PoolingIndexes:
        """Row ranges in both directions; RequestError for an input without output or vice versa."""
        left, right = self.left_context, self.right_context
        name, period = self.type_name, self.input_period
        ts = output_indexes[:, 1]
        forward = window_ranges(name, input_indexes, output_indexes, ts - left, ts + right, period)
        ts = input_indexes[:, 1]
        backward = window_ranges(name, output_indexes, input_indexes, ts - right, ts + left, period)
        return PoolingIndexes(forward=forward, backward=backward if need_backprop else _no_ranges)
