"""y = s x: components with a trainable scale for each column.

Formulas and file fields: Kaldi's PerElementScaleComponent and
NaturalGradientPerElementScaleComponent (nnet-simple-component.cc).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools import tensor
from nnet3tools.nnet.components.array_fields import Preconditioner, Side, Vector
from nnet3tools.nnet.components.base import Array, BackpropArgs, Indexes, Memo, Properties
from nnet3tools.nnet.components.common import get_positive, random_normal, summed
from nnet3tools.nnet.components.fields import Flag, Float, Int, Obsolete
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.updatable import LATE_IS_GRADIENT, UpdatableComponent
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient

if TYPE_CHECKING:
    from nnet3tools.nnet.config import ConfigLine

_multiply = tensor.element("_1 = _2 * _3")
_sum_rows = tensor.aggregate("_1", "sum", axis=0)
_sum_products = tensor.aggregate("_1 * _2", "sum", axis=0)

_min = tensor.aggregate("_1", "min", axis=None)
_max = tensor.aggregate("_1", "max", axis=None)


def add_preconditioned_rows(
    params: Array, derivs: Array, rate: float, preconditioner: OnlineNaturalGradient
) -> None:
    """Precondition `derivs` in place, then add `rate` times the sum of its rows to `params`."""
    scale = preconditioner.precondition(derivs)
    _sum_rows(params, derivs, alpha=rate * scale, beta=1.0)


def random_vector(line: ConfigLine, dim: int, default_mean: float) -> Array:
    """A random vector with mean param-mean and standard deviation param-stddev (default 0)."""
    mean = line.get_float("param-mean", default_mean)
    stddev = line.get_float("param-stddev", 0.0)
    if stddev < 0.0:
        raise line.error("param-stddev must not be negative")
    return random_normal((dim,), stddev, mean)


@register
class PerElementScaleComponent(UpdatableComponent):
    """Multiplies each column by a trainable scale: y = scales * x; `scales` is (dim,)."""

    PROPERTIES = (
        Properties.SIMPLE
        | Properties.UPDATABLE
        | Properties.BACKPROP_NEEDS_INPUT
        | Properties.PROPAGATE_IN_PLACE
        | Properties.BACKPROP_IN_PLACE
    )
    INFO = UpdatableComponent.INFO + " scales_min scales_max scales"

    scales = Vector("<Params>", config="vector", key="scales")
    late_is_gradient = LATE_IS_GRADIENT

    scales_min = property(lambda self: summed(_min(self.scales)))
    scales_max = property(lambda self: summed(_max(self.scales)))

    @property
    def dim(self) -> int:
        """Number of columns."""
        return int(self.scales.shape[0])

    def init_from_config(self, line: ConfigLine) -> None:
        """Read the scales from a file, or draw `dim` random ones."""
        if self.scales.size == 0:
            self.scales = random_vector(line, get_positive(line, "dim"), 1.0)
        elif line.get_int("dim", self.input_dim) != self.input_dim:
            raise line.error(f"dim differs from that of the file ({self.input_dim})")

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        _multiply(out_value, in_value, self.scales)

    def backprop(self, args: BackpropArgs) -> None:
        if args.to_update is not None:  # first, because in_deriv may be out_deriv
            assert isinstance(args.to_update, PerElementScaleComponent)
            assert args.in_value is not None
            args.to_update._update(args.in_value, args.out_deriv)
        if args.in_deriv is not None:
            _multiply(args.in_deriv, args.out_deriv, self.scales)

    def _update(self, in_value: Array, out_deriv: Array) -> None:
        _sum_products(self.scales, out_deriv, in_value, alpha=self.rate, beta=1.0)


@register
class NaturalGradientPerElementScaleComponent(PerElementScaleComponent):
    """Trainable scale per column, with natural gradient of low rank to save memory."""

    INFO = PerElementScaleComponent.INFO + " rank update_period num_samples_history alpha"

    preconditioner = Preconditioner(Side.ROWS, rank=8, update_period=10)
    scales = Vector("<Params>", config="scales")
    late_is_gradient = Flag("<IsGradient>", of="is_gradient")
    rank = Int("<Rank>", "rank", 8, of="preconditioner.rank")
    update_period = Int("<UpdatePeriod>", "update-period", 10, of="preconditioner.update_period")
    num_samples_history = Float(
        "<NumSamplesHistory>",
        "num-samples-history",
        2000.0,
        of="preconditioner.num_samples_history",
    )
    alpha = Float("<Alpha>", "alpha", 4.0, of="preconditioner.alpha")
    max_change_per_minibatch = Obsolete("<MaxChangePerMinibatch>", "read_float")

    def _update(self, in_value: Array, out_deriv: Array) -> None:
        if self.is_gradient:
            super()._update(in_value, out_deriv)
            return
        with tensor.scratch(in_value.shape, like=in_value) as derivs:
            _multiply(derivs, in_value, out_deriv)
            add_preconditioned_rows(self.scales, derivs, self.rate, self.preconditioner)
