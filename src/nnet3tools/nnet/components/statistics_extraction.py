"""StatisticsExtractionComponent: counts, sums and sums of squares over periods of frames.

Kaldi's nnet-general-component.cc. Rows are ordered by n, x, t, so that every period is a range of
rows. StatisticsPoolingComponent makes means and standard deviations of these statistics.
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

__all__ = ["ExtractionIndexes", "StatisticsExtractionComponent"]

_no_rows = np.empty(0, np.int32)

_square = tensor.element("_1 = _2 * _2")
_add_twice_product = tensor.element("_1 += 2 * _2 * _3")
_add = tensor.element("_1 += _2")


@register_precomputed
class ExtractionIndexes(PrecomputedIndexes):
    """Rows that each output sums, how many they are, and the output that each input went to."""

    type_name: ClassVar[str] = "StatisticsExtractionComponentPrecomputedIndexes"

    def __init__(self, forward: IntArray, counts: np.ndarray, backward: IntArray) -> None:
        self.forward, self.counts, self.backward = forward, counts, backward

    def fits(self, component: Component, num_inputs: int, num_outputs: int) -> bool:
        right = len(self.forward) == num_outputs and int(self.forward.max(initial=0)) <= num_inputs
        if len(self.backward):
            right = right and len(self.backward) == num_inputs
            right = right and int(self.backward.max(initial=0)) < num_outputs
        return right

    @classmethod
    def read(cls, reader: Reader) -> Self:
        forward = read_field(reader, "<ForwardIndexes>", reader.read_int_pairs)
        counts = read_field(reader, "<Counts>", reader.read_vector)
        backward = read_field(reader, "<BackwardIndexes>", reader.read_int32_vector)
        reader.expect_token(f"</{cls.type_name}>")
        require(reader, len(counts) == len(forward), "as many counts as row ranges expected")
        return cls(forward, counts, backward)

    def write(self, writer: Writer) -> None:
        writer.write_token(f"<{self.type_name}>")
        writer.write_token("<ForwardIndexes>")
        writer.write_int_pairs(self.forward)
        write_field(writer, "<Counts>", self.counts)
        writer.write_token("<BackwardIndexes>")
        writer.write_int32_vector(self.backward)
        writer.write_token(f"</{self.type_name}>")


@register
class StatisticsExtractionComponent(Component):
    """Count, sum and (unless `include_variance` is false) sum of squares over periods of frames."""

    def __init__(
        self, input_dim: int, input_period: int, output_period: int, variance: bool
    ) -> None:
        self._input_dim = input_dim
        self.input_period, self.output_period = input_period, output_period
        self.include_variance = variance

    @property
    def input_dim(self) -> int:
        return self._input_dim

    @property
    def output_dim(self) -> int:
        return 1 + self._input_dim * (2 if self.include_variance else 1)

    @property
    def properties(self) -> Properties:
        flags = Properties.PROPAGATE_ADDS | Properties.REORDERS_INDEXES
        return flags | Properties.BACKPROP_NEEDS_INPUT if self.include_variance else flags

    # -- creation and files

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        self = cls(
            get_positive(line, "input-dim"),
            get_positive(line, "input-period", 1),
            get_positive(line, "output-period", 1),
            line.get_bool("include-variance", True),
        )
        if self.output_period % self.input_period != 0:
            raise line.error("output-period must be a multiple of input-period")
        return self

    @classmethod
    def read(cls, reader: Reader) -> Self:
        dim = read_field(reader, "<InputDim>", reader.read_int32)
        input_period = read_field(reader, "<InputPeriod>", reader.read_int32)
        output_period = read_field(reader, "<OutputPeriod>", reader.read_int32)
        # Kaldi's spelling.
        variance = read_field(reader, "<IncludeVarinance>", reader.read_bool)
        reader.expect_token(f"</{cls.type_name}>")
        good = min(dim, input_period, output_period) > 0 and output_period % input_period == 0
        require(reader, good, "invalid configuration of StatisticsExtractionComponent")
        return cls(dim, input_period, output_period, variance)

    def write(self, writer: Writer) -> None:
        writer.write_token(f"<{self.type_name}>")
        write_field(writer, "<InputDim>", self._input_dim)
        write_field(writer, "<InputPeriod>", self.input_period)
        write_field(writer, "<OutputPeriod>", self.output_period)
        write_field(writer, "<IncludeVarinance>", self.include_variance)
        writer.write_token(f"</{self.type_name}>")

    # -- running

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Each output is the sum of a range of rows (squares apart: they are done once a row)."""
        forward = getattr(indexes, "forward", None)
        summed = rows if forward is None else int((forward[:, 1] - forward[:, 0]).sum())
        return summed * self.output_dim

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        assert isinstance(indexes, ExtractionIndexes)
        dim = self._input_dim
        _add(out_value[:, :1], tensor.constant(indexes.counts, like=out_value)[:, None])
        tensor.add_row_ranges(out_value[:, 1 : dim + 1], in_value, indexes.forward)
        if self.include_variance:
            with tensor.scratch(in_value.shape, like=in_value) as squares:
                _square(squares, in_value)
                tensor.add_row_ranges(out_value[:, dim + 1 :], squares, indexes.forward)

    def backprop(self, args: BackpropArgs) -> None:
        """D sum / dx = 1, d sum of squares / dx = 2 x; the count has no derivative."""
        assert isinstance(args.indexes, ExtractionIndexes)
        if args.in_deriv is None:
            return
        dim = self._input_dim
        tensor.copy_rows(args.in_deriv, args.out_deriv[:, 1 : dim + 1], args.indexes.backward)
        if self.include_variance:
            with tensor.scratch(args.in_deriv.shape, like=args.in_deriv) as variance_deriv:
                tensor.copy_rows(
                    variance_deriv, args.out_deriv[:, dim + 1 :], args.indexes.backward
                )
                _add_twice_product(args.in_deriv, variance_deriv, args.in_value)

    # -- indexes

    def _periods(self, indexes: IndexArray) -> IntArray:
        """First time of the period that each index is in."""
        return indexes[:, 1] // self.output_period * self.output_period

    def input_indexes(self, output_indexes: IndexArray) -> tuple[IndexArray, IntArray]:
        starts = output_indexes.copy()
        starts[:, 1] = self._periods(output_indexes)
        shifts = np.arange(0, self.output_period, self.input_period, dtype=np.int32)
        return at_shifts(starts, shifts)

    def computable(
        self,
        output_indexes: IndexArray,
        inputs: IndexArray,
        offsets: IntArray,
        available: BoolArray,
    ) -> tuple[BoolArray, BoolArray]:
        """One frame of the period is enough; all there are get used."""
        return used_if_any(available, self.output_period // self.input_period)

    def reorder_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray
    ) -> tuple[IndexArray, IndexArray]:
        return nxt_order(input_indexes), nxt_order(output_indexes)

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
            forward, counts.astype(np.float32), backward if need_backprop else _no_rows
        )
