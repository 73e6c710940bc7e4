"""y = s x: components with a trainable scale for each column.

Formulas and file fields: Kaldi's PerElementScaleComponent and
NaturalGradientPerElementScaleComponent (nnet-simple-component.cc).
"""

from __future__ import annotations

from nnet3tools import tensor
from nnet3tools.nnet.components.array_fields import Preconditioner, Side, Vector
from nnet3tools.nnet.components.base import Array, BackpropArgs, Indexes, Memo, Properties
from nnet3tools.nnet.components.common import get_positive, random_normal, summed
from nnet3tools.nnet.components.fields import Flag, Float, Int, Obsolete
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.updatable import LATE_IS_GRADIENT, UpdatableComponent
from nnet3tools.nnet.config import ConfigLine
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient

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


def update_by_rows(
    component: UpdatableComponent, params: Array, derivs: Array, estimate: OnlineNaturalGradient
) -> None:
    """Add the learning rate times the sum of the rows of `derivs` to `params` of a component.

    Before, a copy of the rows is preconditioned with `estimate`, unless the component accumulates a
    plain gradient or has natural gradient switched off.
    """
    if component.is_gradient or not component.use_natural_gradient:
        _sum_rows(params, derivs, alpha=component.rate, beta=1.0)
        return
    with tensor.scratch(derivs.shape, like=derivs) as preconditioned:
        tensor.copy(preconditioned, derivs)
        add_preconditioned_rows(params, preconditioned, component.rate, estimate)


def random_vector(line: ConfigLine, dim: int, default_mean: float) -> Array:
    """A random vector with the line's param-mean (or `default_mean`) and param-stddev (or 0)."""
    mean = line.get_float("param-mean", default_mean)
    stddev = line.get_float("param-stddev", 0.0)
    if stddev < 0.0:
        raise line.error("param-stddev must not be negative")
    return random_normal((dim,), stddev, mean)


@register
class PerElementScaleComponent(UpdatableComponent):
    """Multiplies each column by a trainable scale: y = scales * x; `scales` is (dim,)."""

    FORMULA = "y = scales x"
    KEYS = "[vector] [dim] param-mean=1 param-stddev=0"
    PROPERTIES = Properties.BACKPROP_NEEDS_INPUT | Properties.IN_PLACE
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

    def backprop_input(self, args: BackpropArgs) -> None:
        _multiply(args.in_deriv, args.out_deriv, self.scales)

    def update(self, args: BackpropArgs) -> None:
        _sum_products(self.scales, args.out_deriv, args.in_value, alpha=self.rate, beta=1.0)


@register
class NaturalGradientPerElementScaleComponent(PerElementScaleComponent):
    """Trainable scale per column, with natural gradient of low rank to save memory."""

    KEYS = "[scales] [dim] param-mean=1 param-stddev=0"
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

    def update(self, args: BackpropArgs) -> None:
        if self.is_gradient:
            super().update(args)
            return
        with tensor.scratch(args.out_deriv.shape, like=args.out_deriv) as derivs:
            _multiply(derivs, args.in_value, args.out_deriv)
            add_preconditioned_rows(self.scales, derivs, self.rate, self.preconditioner)
