"""Base class of nonlinearities: dimension, statistics, options of self-repair.

Statistics and file fields are those of Kaldi's NonlinearComponent (nnet-component-itf.cc).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from nnet3tools import tensor
from nnet3tools.nnet.components.array_fields import Count, Statistic, rounded_average
from nnet3tools.nnet.components.base import Array, Component
from nnet3tools.nnet.components.common import division_problem
from nnet3tools.nnet.components.fields import Float, Int
from nnet3tools.nnet.components.summary import summarize_vector
from nnet3tools.nnet.derivative_scale import derivative_scale
from nnet3tools.tensor import recording
from nnet3tools.tensor.settings import begin_settings

UNSET_THRESHOLD = -1000.0
"""A self-repair threshold that was not given; the nonlinearity's default applies."""

REPAIR_PROBABILITY = 0.5
"""Self-repair runs on this proportion of minibatches, and is scaled up accordingly."""

_sum_rows = tensor.aggregate("_1", "sum", axis=0)
_sum_squares = tensor.aggregate("sqr(_1)", "sum", axis=0)
# omits overflowed values, which would spoil the sum permanently
_sum_unscaled_squares = tensor.aggregate(
    "where(abs(_1) < 1e37, sqr(float64(_1) / _2), 0)", "sum", axis=0
)


class _RootMeanSquare(Statistic):
    """A field with a sum of squares over rows; files store the root of the mean square."""

    def total(self, average: Array, count: float) -> Array:
        return average * average * count

    def file_value(self, owner: Any) -> Array:
        # An average may be negative after models were subtracted.
        return np.sqrt(np.maximum(super().file_value(owner), np.float32(0.0)))


class NonlinearComponent(Component):
    """A nonlinearity of `dim` columns, treated as blocks of `block_dim`, with statistics.

    Over `count` rows, `value_sum` and `deriv_sum` (dim,) sum outputs and derivatives of the
    function. Over `oderiv_count` rows, `oderiv_sumsq` sums squares of the objective's derivatives.
    The sums are float64, and None before the first minibatch. Vectors of another size in files are
    kept but not used; new statistics replace them. Without `sum_derivatives` there is no deriv_sum.
    """

    INFO = "dim block_dim self_repair_lower_threshold self_repair_upper_threshold self_repair_scale"
    sum_derivatives: ClassVar[Any] = None
    """The `aggregate` that sums dy/dx over rows, given y; None if these statistics are not kept."""

    dim = Int("<Dim>", "dim", positive=True)
    block_dim = Int("<BlockDim>", "block-dim", lambda c: c.dim, omit=True, positive=True)
    value_sum = Statistic("<ValueAvg>", "count")
    deriv_sum = Statistic("<DerivAvg>", "count")
    count = Count("<Count>")
    oderiv_sumsq = _RootMeanSquare("<OderivRms>", "oderiv_count", optional=True)
    oderiv_count = Count("<OderivCount>", optional=True)
    num_dims_self_repaired = Count("<NumDimsSelfRepaired>", optional=True)
    num_dims_processed = Count("<NumDimsProcessed>", optional=True)
    self_repair_lower_threshold = Float(
        "<SelfRepairLowerThreshold>", "self-repair-lower-threshold", UNSET_THRESHOLD, omit=True
    )
    self_repair_upper_threshold = Float(
        "<SelfRepairUpperThreshold>", "self-repair-upper-threshold", UNSET_THRESHOLD, omit=True
    )
    self_repair_scale = Float("<SelfRepairScale>", "self-repair-scale", 0.0, omit=True)

    def problem(self) -> str | None:
        return division_problem("block-dim", self.block_dim, "dim", self.dim)

    def info(self) -> str:
        parts = [super().info()]
        if self.count.is_positive() and self._fits(self.value_sum):
            processed = self.num_dims_processed
            proportion = self.num_dims_self_repaired / processed if processed > 0 else 0.0
            parts.append(f"count={self.count:.3g}, self-repaired-proportion={proportion:g}")
            parts.append(
                f"value-avg={summarize_vector(rounded_average(self.value_sum, self.count))}"
            )
            if self._fits(self.deriv_sum):
                deriv_avg = tensor.to_host(self.deriv_sum) / self.count
                parts.append(f"deriv-avg={summarize_vector(deriv_avg)}")
        if self.oderiv_count.is_positive() and self._fits(self.oderiv_sumsq):
            mean_square = tensor.to_host(self.oderiv_sumsq) / self.oderiv_count
            rms = summarize_vector(np.sqrt(np.maximum(mean_square, 0.0)))
            parts.append(f"oderiv-rms={rms}, oderiv-count={self.oderiv_count:g}")
        return ", ".join(parts)

    # -- statistics

    def _fits(self, vector: Array | None) -> bool:
        return vector is not None and vector.shape[0] == self.dim

    def _have_room(self, like: Array, count: str, *names: str) -> None:
        """Set sums and their count to zero if a sum is missing or has a wrong size.

        `names` and `count` are names of fields. The new arrays are on the device of `like`.
        """
        recording.prepare(
            like,
            lambda: not all(self._fits(getattr(self, name)) for name in names),
            partial(self._make_room, like, count, names),
        )

    def _make_room(self, like: Array, count: str, names: Sequence[str]) -> None:
        setattr(self, count, 0.0)
        for name in names:
            zeros = tensor.zeros((self.dim,), like=like, dtype=np.float64)
            if getattr(self, name) is None:
                begin_settings(self, **{name: zeros})
            else:
                setattr(self, name, zeros)

    def store_stats(self, in_value: Array, out_value: Array, memo: object) -> None:
        """Add values and derivatives to the sums, on the first minibatch and half of the others."""
        with recording.optional(self._stores_now, out_value) as is_now:
            if is_now:
                self.sum_stats(out_value)

    def _stores_now(self) -> bool:
        return tensor.random.rand_int(0, 1) != 0 or self.count.is_zero()

    def sum_stats(self, out_value: Array) -> None:
        """Add rows of values, and of the function's derivatives if kept, to the statistics."""
        with_derivatives = self.sum_derivatives is not None
        names = ("value_sum", "deriv_sum") if with_derivatives else ("value_sum",)
        self._have_room(out_value, "count", *names)
        self.count += out_value.shape[0]
        _sum_rows(self.value_sum, out_value, beta=1.0)
        if with_derivatives:
            type(self).sum_derivatives(self.deriv_sum, out_value, beta=1.0)

    def store_backprop_stats(self, out_deriv: Array) -> None:
        """Add squares of derivatives to `oderiv_sumsq`, at the first call and 3/4 of later ones."""
        with recording.optional(self._stores_derivatives_now, out_deriv) as is_now:
            if is_now:
                self._have_room(out_deriv, "oderiv_count", "oderiv_sumsq")
                if (scale := derivative_scale()) is None:
                    _sum_squares(self.oderiv_sumsq, out_deriv, beta=1.0)
                else:
                    _sum_unscaled_squares(self.oderiv_sumsq, out_deriv, scale.array, beta=1.0)
                self.oderiv_count += out_deriv.shape[0]

    def _stores_derivatives_now(self) -> bool:
        return tensor.random.rand_int(0, 3) != 0 or self.oderiv_count.is_zero()
