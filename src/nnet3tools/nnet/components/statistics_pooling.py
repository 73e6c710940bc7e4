"""StatisticsPoolingComponent: mean and standard deviation over a window of extracted statistics.

Kaldi's nnet-general-component.cc. The input's columns are count, sums and (for `output_stddevs`)
sums of squares, as StatisticsExtractionComponent makes them. Rows are ordered by n, x, t, so that
every window is a range of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

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
from nnet3tools.nnet.components.common import get_positive, read_field, require, write_field
from nnet3tools.nnet.components.registry import register, register_precomputed
from nnet3tools.nnet.components.time_windows import (
    at_shifts,
    nxt_order,
    used_if_any,
    window_ranges,
)
from nnet3tools.nnet.indexes import BoolArray, IndexArray, IntArray

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["PoolingIndexes", "StatisticsPoolingComponent"]

_no_ranges = np.empty((0, 2), np.int32)

_divide = tensor.element("_1 = _1 / _2")
_log = tensor.element("_1 = log(_2)")
_exp = tensor.element("_1 = exp(_2)")
_to_stddev = tensor.element("_1 = sqrt(max(_1 - _2 * _2, _3))")
_through_stddev = tensor.element("_1 = 0.5 * _1 / _2")
_through_mean = tensor.element("_1 = _1 - 2 * _2 * _3")


@register_precomputed
class PoolingIndexes(PrecomputedIndexes):
    """Input rows that each output sums, and output rows that each input went to."""

    type_name: ClassVar[str] = "StatisticsPoolingComponentPrecomputedIndexes"

    def __init__(self, forward: IntArray, backward: IntArray) -> None:
        self.forward, self.backward = forward, backward

    def fits(self, component: Component, num_inputs: int, num_outputs: int) -> bool:
        right = len(self.forward) == num_outputs and int(self.forward.max(initial=0)) <= num_inputs
        if len(self.backward):
            right = right and len(self.backward) == num_inputs
            right = right and int(self.backward.max(initial=0)) <= num_outputs
        return right

    @classmethod
    def read(cls, reader: Reader) -> Self:
        forward = read_field(reader, "<ForwardIndexes>", reader.read_int_pairs)
        backward = read_field(reader, "<BackwardIndexes>", reader.read_int_pairs)
        reader.expect_token(f"</{cls.type_name}>")
        return cls(forward, backward)

    def write(self, writer: Writer) -> None:
        writer.write_token(f"<{self.type_name}>")
        writer.write_token("<ForwardIndexes>")
        writer.write_int_pairs(self.forward)
        writer.write_token("<BackwardIndexes>")
        writer.write_int_pairs(self.backward)
        writer.write_token(f"</{self.type_name}>")


@register
class StatisticsPoolingComponent(Component):
    """`num_log_count_features` log counts, means, and standard deviations if `output_stddevs`.

    The window of an output at t is [t - left_context, t + right_context]; one frame in it is
    enough. Outputs exist at multiples of `input_period`.
    """

    def __init__(
        self,
        input_dim: int,
        input_period: int = 1,
        left_context: int = -1,
        right_context: int = -1,
        num_log_count_features: int = 0,
        output_stddevs: bool = False,
        variance_floor: float = 1.0e-10,
    ) -> None:
        self._input_dim, self.input_period = input_dim, input_period
        self.left_context, self.right_context = left_context, right_context
        self.num_log_count_features = num_log_count_features
        self.output_stddevs, self.variance_floor = output_stddevs, variance_floor

    @property
    def input_dim(self) -> int:
        return self._input_dim

    @property
    def output_dim(self) -> int:
        return self._input_dim + self.num_log_count_features - 1

    @property
    def properties(self) -> Properties:
        """The counts come from the output's log counts, or else from the input again."""
        flags = Properties.REORDERS_INDEXES | Properties.BACKPROP_ADDS
        if self.output_stddevs or self.num_log_count_features > 0:
            flags |= Properties.BACKPROP_NEEDS_OUTPUT
        if self.num_log_count_features == 0:
            flags |= Properties.BACKPROP_NEEDS_INPUT
        return flags

    # -- creation and files

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        self = cls(
            get_positive(line, "input-dim"),
            line.get_int("input-period", 1),
            line.get_int("left-context", -1),
            line.get_int("right-context", -1),
            line.get_int("num-log-count-features", 0),
            line.get_bool("output-stddevs", False),
            line.get_float("variance-floor", 1.0e-10),
        )
        if (problem := self._problem()) is not None:
            raise line.error(problem)
        return self

    def _problem(self) -> str | None:
        """What is wrong with the configuration, in words, or None."""
        left, right, period = self.left_context, self.right_context, self.input_period
        if self._input_dim <= 0 or period <= 0 or self.num_log_count_features < 0:
            return (
                "input-dim and input-period must be positive, num-log-count-features not negative"
            )
        if left < 0 or right < 0 or left + right == 0:
            return f"left-context and right-context must be >= 0, not both 0: found {left}, {right}"
        if left % period or right % period:
            return f"left-context {left} and right-context {right} must be multiples of {period}"
        if not 0.0 < self.variance_floor < 1.0:
            return f"variance-floor must be between 0 and 1, found {self.variance_floor:g}"
        if self.output_stddevs and self._input_dim % 2 == 0:
            return f"output-stddevs needs an odd input-dim (2n + 1), found {self._input_dim}"
        return None

    @classmethod
    def read(cls, reader: Reader) -> Self:
        self = cls(
            read_field(reader, "<InputDim>", reader.read_int32),
            read_field(reader, "<InputPeriod>", reader.read_int32),
            read_field(reader, "<LeftContext>", reader.read_int32),
            read_field(reader, "<RightContext>", reader.read_int32),
            read_field(reader, "<NumLogCountFeatures>", reader.read_int32),
            read_field(reader, "<OutputStddevs>", reader.read_bool),
            read_field(reader, "<VarianceFloor>", reader.read_float),
        )
        reader.expect_token(f"</{cls.type_name}>")
        problem = self._problem()
        require(reader, problem is None, f"{cls.type_name}: {problem}")
        return self

    def write(self, writer: Writer) -> None:
        writer.write_token(f"<{self.type_name}>")
        write_field(writer, "<InputDim>", self._input_dim)
        write_field(writer, "<InputPeriod>", self.input_period)
        write_field(writer, "<LeftContext>", self.left_context)
        write_field(writer, "<RightContext>", self.right_context)
        write_field(writer, "<NumLogCountFeatures>", self.num_log_count_features)
        write_field(writer, "<OutputStddevs>", self.output_stddevs)
        write_field(writer, "<VarianceFloor>", float(self.variance_floor))
        writer.write_token(f"</{self.type_name}>")

    # -- running

    def _mean_and_other(self, matrix: Array) -> tuple[Array, Array]:
        """The columns of the means and those of the mean squares or standard deviations."""
        dim = (self._input_dim - 1) // 2
        return matrix[:, :dim], matrix[:, dim:]

    def _sum_counts(self, counts: Array, indexes: PoolingIndexes, in_value: Array) -> None:
        tensor.fill(counts, 0.0)
        tensor.add_row_ranges(counts, in_value[:, :1], indexes.forward)

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Each output is the sum of a range of rows (squares apart: they are done once a row)."""
        forward = getattr(indexes, "forward", None)
        summed = rows if forward is None else int((forward[:, 1] - forward[:, 0]).sum())
        return summed * self.output_dim

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
        """The variance floor is ignored, as in Kaldi; the counts get no derivative."""
        assert isinstance(args.indexes, PoolingIndexes)
        if args.in_deriv is None:
            return
        logs, shape = self.num_log_count_features, (args.out_deriv.shape[0], self._input_dim - 1)
        with (
            tensor.scratch(shape, like=args.out_deriv) as deriv,
            tensor.scratch((shape[0], 1), like=args.out_deriv) as counts,
        ):
            tensor.copy(deriv, args.out_deriv[:, logs:])
            if self.output_stddevs:
                mean_deriv, variance_deriv = self._mean_and_other(deriv)
                mean, stddev = self._mean_and_other(args.out_value[:, logs:])  # type: ignore[index]
                _through_stddev(variance_deriv, stddev)
                _through_mean(mean_deriv, mean, variance_deriv)
            if logs > 0:
                _exp(counts, args.out_value[:, :1])  # type: ignore[index]
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
        self,
        output_indexes: IndexArray,
        inputs: IndexArray,
        offsets: IntArray,
        available: BoolArray,
    ) -> tuple[BoolArray, BoolArray]:
        """One frame in the window is enough, at times that are multiples of the input period."""
        width = (self.left_context + self.right_context) // self.input_period + 1
        computable, used = used_if_any(available, width)
        on_grid = output_indexes[:, 1] % self.input_period == 0
        return computable & on_grid, used & np.repeat(on_grid, width)

    def reorder_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray
    ) -> tuple[IndexArray, IndexArray]:
        return nxt_order(input_indexes), nxt_order(output_indexes)

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> PoolingIndexes:
        """Ranges both ways; an input without an output, or the other way round, is an error."""
        left, right = self.left_context, self.right_context
        name, period = self.type_name, self.input_period
        ts = output_indexes[:, 1]
        forward = window_ranges(name, input_indexes, output_indexes, ts - left, ts + right, period)
        ts = input_indexes[:, 1]
        backward = window_ranges(name, output_indexes, input_indexes, ts - right, ts + left, period)
        return PoolingIndexes(forward, backward if need_backprop else _no_ranges)
