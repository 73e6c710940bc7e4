"""BackpropTruncationComponent: the identity with a derivative that is clipped and at times zeroed.

Kaldi's nnet-general-component.cc; it keeps derivatives of recurrences from exploding. A row of the
derivative longer than `clipping_threshold` is scaled down to it; where its time crosses a multiple
of `zeroing_interval` (shifted by n), a row longer than `zeroing_threshold` is set to zero.
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
from nnet3tools.nnet.components.common import (
    get_positive,
    optional_field,
    read_field,
    require,
    summed,
    write_double_field,
    write_field,
)
from nnet3tools.nnet.components.registry import register, register_precomputed
from nnet3tools.nnet.derivative_scale import derivative_scale
from nnet3tools.nnet.indexes import IndexArray
from nnet3tools.tensor.counter import Counter

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["BackpropTruncationComponent", "TruncationIndexes"]

_OFF = 1.0e10
"""The threshold that stands for none; a configured 0 means that."""

_STATS = (
    ("<NumElementsClipped>", "num_clipped"),
    ("<NumElementsZeroed>", "num_zeroed"),
    ("<NumElementsProcessed>", "count"),
    ("<NumZeroingBoundaries>", "count_zeroing_boundaries"),
)

_scale_to = tensor.element("_1 = _2 * _3")
_norms = tensor.aggregate("_1 * _1", "sum", axis=1)
_unscale = tensor.element("_1 = _1 / (_2 * _2)")
_zeroed = tensor.element("_1 = where(_2 > _3, -_4, 0)")
_scales = tensor.element("_1 = (1 - _2) / sqrt(max(_1 / _3, 1))")
_total = tensor.aggregate("_1", "sum", axis=None)
_number_above = tensor.aggregate("where(_1 < _2, 0, 1)", "sum", axis=None)


@register_precomputed
class TruncationIndexes(PrecomputedIndexes):
    """-1 for rows whose time crosses a zeroing boundary, 0 for others; and how many cross."""

    type_name: ClassVar[str] = "BackpropTruncationComponentPrecomputedIndexes"

    def __init__(self, zeroing: np.ndarray, zeroing_sum: float) -> None:
        self.zeroing, self.zeroing_sum = zeroing, zeroing_sum

    def fits(self, component: Component, num_inputs: int, num_outputs: int) -> bool:
        return len(self.zeroing) == num_inputs == num_outputs

    @classmethod
    def read(cls, reader: Reader) -> Self:
        zeroing = read_field(reader, "<Zeroing>", reader.read_vector)
        zeroing_sum = read_field(reader, "<ZeroingSum>", reader.read_float)
        reader.expect_token(f"</{cls.type_name}>")
        return cls(zeroing, zeroing_sum)

    def write(self, writer: Writer) -> None:
        writer.write_token(f"<{self.type_name}>")
        write_field(writer, "<Zeroing>", self.zeroing)
        write_field(writer, "<ZeroingSum>", float(self.zeroing_sum))
        writer.write_token(f"</{self.type_name}>")


@register
class BackpropTruncationComponent(Component):
    """y = scale * x; see the module for the derivative."""

    count, num_clipped, num_zeroed, count_zeroing_boundaries = (Counter() for _ in range(4))

    def __init__(self, dim: int) -> None:
        self.dim, self.scale_factor = dim, 1.0
        self.clipping_threshold, self.zeroing_threshold = 30.0, 15.0
        self.zeroing_interval, self.recurrence_interval = 20, 1
        self.zero_stats()

    @property
    def input_dim(self) -> int:
        return self.dim

    @property
    def output_dim(self) -> int:
        return self.dim

    @property
    def properties(self) -> Properties:
        return Properties.PROPAGATE_IN_PLACE | Properties.BACKPROP_IN_PLACE

    # -- creation and files

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        self = cls(get_positive(line, "dim"))
        self.scale_factor = line.get_float("scale", 1.0)
        self.clipping_threshold = line.get_float("clipping-threshold", 30.0)
        self.zeroing_threshold = line.get_float("zeroing-threshold", 15.0)
        self.zeroing_interval = get_positive(line, "zeroing-interval", 20)
        self.recurrence_interval = get_positive(line, "recurrence-interval", 1)
        if self.clipping_threshold < 0.0 or self.zeroing_threshold < 0.0:
            raise line.error("clipping-threshold and zeroing-threshold must not be negative")
        if self.scale_factor <= 0.0:
            raise line.error("scale must be positive")
        return self

    @classmethod
    def read(cls, reader: Reader) -> Self:
        self = cls(read_field(reader, "<Dim>", reader.read_int32))
        self.scale_factor = optional_field(reader, "<Scale>", reader.read_float, 1.0)
        self.clipping_threshold = read_field(reader, "<ClippingThreshold>", reader.read_float)
        self.zeroing_threshold = read_field(reader, "<ZeroingThreshold>", reader.read_float)
        self.zeroing_interval = read_field(reader, "<ZeroingInterval>", reader.read_int32)
        self.recurrence_interval = read_field(reader, "<RecurrenceInterval>", reader.read_int32)
        for token, name in _STATS:
            setattr(self, name, read_field(reader, token, reader.read_double))
        reader.expect_token(f"</{cls.type_name}>")
        sizes = min(self.dim, self.zeroing_interval, self.recurrence_interval)
        require(reader, sizes > 0, f"{cls.type_name}: dim and intervals must be positive")
        return self

    def write(self, writer: Writer) -> None:
        writer.write_token(f"<{self.type_name}>")
        write_field(writer, "<Dim>", self.dim)
        write_field(writer, "<Scale>", float(self.scale_factor))
        write_field(writer, "<ClippingThreshold>", float(self.clipping_threshold))
        write_field(writer, "<ZeroingThreshold>", float(self.zeroing_threshold))
        write_field(writer, "<ZeroingInterval>", self.zeroing_interval)
        write_field(writer, "<RecurrenceInterval>", self.recurrence_interval)
        for token, name in _STATS:
            write_double_field(writer, token, getattr(self, name))
        writer.write_token(f"</{self.type_name}>")

    def info(self) -> str:
        clipped = self.num_clipped / self.count if self.count > 0.0 else 0.0
        boundaries = self.count_zeroing_boundaries
        zeroed = self.num_zeroed / boundaries if boundaries > 0.0 else 0.0
        return (
            f"{self.type_name}, dim={self.dim}, scale={self.scale_factor:g}"
            f", count={self.count:.3g}, recurrence-interval={self.recurrence_interval}"
            f", clipping-threshold={self.clipping_threshold:g}, clipped-proportion={clipped:g}"
            f", zeroing-threshold={self.zeroing_threshold:g}"
            f", zeroing-interval={self.zeroing_interval}, zeroed-proportion={zeroed:g}"
            f", count-zeroing-boundaries={int(boundaries)}"
        )

    # -- running

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        self._scale_by_factor(out_value, in_value)

    def _scale_by_factor(self, out: Array, source: Array) -> None:
        if self.scale_factor != 1.0:
            _scale_to(out, source, self.scale_factor)
        elif out is not source:
            tensor.copy(out, source)

    def backprop(self, args: BackpropArgs) -> None:
        """Statistics go to `to_update`: this is no parameter update, but they count what it saw."""
        assert isinstance(args.indexes, TruncationIndexes)
        if args.in_deriv is None:
            return
        self._scale_by_factor(args.in_deriv, args.out_deriv)
        clip, zero = self.clipping_threshold or _OFF, self.zeroing_threshold or _OFF
        rows = args.in_deriv.shape[0]
        with (
            tensor.scratch((rows, 1), like=args.in_deriv) as norms,
            tensor.scratch((rows, 1), like=args.in_deriv) as zeroed,
        ):
            _norms(norms, args.in_deriv)  # squared
            if (derivative := derivative_scale()) is not None:
                _unscale(norms, derivative)
            marks = tensor.constant(args.indexes.zeroing, like=args.in_deriv).reshape(rows, 1)
            _zeroed(zeroed, norms, zero * zero, marks)
            if isinstance(args.to_update, BackpropTruncationComponent):
                args.to_update.num_clipped += summed(_number_above(norms, clip * clip))
                args.to_update.count += rows
                args.to_update.num_zeroed += summed(_total(zeroed))
                args.to_update.count_zeroing_boundaries += args.indexes.zeroing_sum
            _scales(norms, zeroed, clip * clip)
            _scale_to(args.in_deriv, args.in_deriv, norms)

    # -- statistics

    def zero_stats(self) -> None:
        self.num_clipped = self.num_zeroed = 0.0
        self.count = self.count_zeroing_boundaries = 0.0

    def scale(self, scale: float) -> None:
        for _, name in _STATS:
            total = getattr(self, name)
            total *= scale
            setattr(self, name, total)

    def add(self, alpha: float, other: Component) -> None:
        for _, name in _STATS:
            total = getattr(self, name)
            if getattr(other, name) != 0.0:
                total += alpha * getattr(other, name)
            setattr(self, name, total)

    # -- indexes

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> TruncationIndexes:
        """Mark rows with a boundary between them and the frame that the recurrence came from."""
        if len(input_indexes) != len(output_indexes):
            raise RequestError(f"{self.type_name}: as many inputs as outputs expected")
        time = output_indexes[:, 1].astype(np.int64) - output_indexes[:, 0]
        interval = self.zeroing_interval
        crosses = time // interval != (time - self.recurrence_interval) // interval
        zeroing = np.where(crosses, -1.0, 0.0).astype(np.float32)
        return TruncationIndexes(zeroing, -float(zeroing.sum()))  # may be -0.0, as in Kaldi
