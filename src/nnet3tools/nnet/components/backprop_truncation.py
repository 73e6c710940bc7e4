"""BackpropTruncationComponent: identity whose derivative is clipped and at intervals zeroed.

From Kaldi's nnet-general-component.cc; it keeps derivatives of recurrences from exploding. A row
with a norm above `clipping_threshold` is scaled down to it. At times that cross a multiple of
`zeroing_interval` (shifted by n), a row with a norm above `zeroing_threshold` is zeroed.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import RequestError
from nnet3tools.nnet.components.array_fields import Count, Vector
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    PrecomputedIndexes,
    Properties,
)
from nnet3tools.nnet.components.common import summed
from nnet3tools.nnet.components.fields import Float, Int, NotNegative
from nnet3tools.nnet.components.registry import register, register_precomputed
from nnet3tools.nnet.derivative_scale import derivative_scale
from nnet3tools.nnet.indexes import IndexArray

_OFF = 1.0e10
"""The threshold that is used if the configured one is 0, which means none."""

_scale_to = tensor.element("_1 = _2 * _3")
_norms = tensor.aggregate("_1 * _1", "sum", axis=1)
_unscale = tensor.element("_1 = _1 / (_2 * _2)")
_zeroed = tensor.element("_1 = where(_2 > _3, -_4, 0)")
_scales = tensor.element("_1 = (1 - _2) / sqrt(max(_1 / _3, 1))")
_total = tensor.aggregate("_1", "sum", axis=None)
_number_above = tensor.aggregate("where(_1 < _2, 0, 1)", "sum", axis=None)


@register_precomputed
class TruncationIndexes(PrecomputedIndexes):
    """Precomputed indexes: by row, -1 if its gradient may be zeroed, else 0; the count of -1."""

    type_name: ClassVar[str] = "BackpropTruncationComponentPrecomputedIndexes"

    zeroing = Vector("<Zeroing>", trainable=False)
    zeroing_sum = Float("<ZeroingSum>")

    def fits(self, component: Component, num_inputs: int, num_outputs: int) -> bool:
        return len(self.zeroing) == num_inputs == num_outputs


class _NumBoundaries(Count):
    """Field for the number of rows at a zeroing boundary; info lines show an integer."""

    def text(self, value: float) -> str:
        return str(int(value))


@register
class BackpropTruncationComponent(Component):
    """Multiplies by `scale`; clips and zeroes derivatives, so that recurrences do not blow up."""

    FORMULA = (
        "y = scale x; dx = scale dy min(1, clipping-threshold / |dy|), or 0 where it is zeroed"
    )
    PROPERTIES = Properties.IN_PLACE
    INFO = (
        "dim scale_factor count recurrence_interval clipping_threshold clipped_proportion "
        "zeroing_threshold zeroing_interval zeroed_proportion count_zeroing_boundaries"
    )

    dim = Int("<Dim>", "dim", positive=True)
    scale_factor = Float("<Scale>", "scale", 1.0, positive=True, optional=True)
    clipping_threshold = NotNegative("<ClippingThreshold>", "clipping-threshold", 30.0)
    zeroing_threshold = NotNegative("<ZeroingThreshold>", "zeroing-threshold", 15.0)
    zeroing_interval = Int("<ZeroingInterval>", "zeroing-interval", 20, positive=True)
    recurrence_interval = Int("<RecurrenceInterval>", "recurrence-interval", 1, positive=True)
    num_clipped = Count("<NumElementsClipped>")
    num_zeroed = Count("<NumElementsZeroed>")
    count = Count("<NumElementsProcessed>", ".3g", key="count")
    count_zeroing_boundaries = _NumBoundaries(
        "<NumZeroingBoundaries>", key="count-zeroing-boundaries"
    )

    @property
    def clipped_proportion(self) -> float:
        """Proportion of the rows whose derivative was clipped to the norm threshold."""
        return self.num_clipped / self.count if self.count.is_positive() else 0.0

    @property
    def zeroed_proportion(self) -> float:
        """Proportion of rows with zeroed derivatives among rows where a zeroing interval begins."""
        boundaries = self.count_zeroing_boundaries
        return self.num_zeroed / boundaries if boundaries.is_positive() else 0.0

    # -- running

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        self._scale_by_factor(out_value, in_value)

    def _scale_by_factor(self, out: Array, source: Array) -> None:
        if self.scale_factor != 1.0:
            _scale_to(out, source, self.scale_factor)
        elif out is not source:
            tensor.copy(out, source)

    def backprop(self, args: BackpropArgs) -> None:
        """Compute the input derivative; clip or zero its rows, and count them in `to_update`."""
        assert isinstance(args.indexes, TruncationIndexes)
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

    # -- indexes

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> TruncationIndexes:
        """Mark the rows whose recurrent input lies in an earlier interval of `zeroing_interval`."""
        if len(input_indexes) != len(output_indexes):
            raise RequestError(f"{self.type_name}: as many inputs as outputs expected")
        time = output_indexes[:, 1].astype(np.int64) - output_indexes[:, 0]
        interval = self.zeroing_interval
        crosses = time // interval != (time - self.recurrence_interval) // interval
        zeroing = np.where(crosses, -1.0, 0.0).astype(np.float32)
        zeroing_sum = -float(zeroing.sum())  # may be -0.0, as in Kaldi
        return TruncationIndexes(zeroing=zeroing, zeroing_sum=zeroing_sum)
