"""Trainable scales (y = s x), offsets (y = x + b), and both (y = s x + b), of columns or blocks.

Formulas and file fields: Kaldi's PerElementScaleComponent, NaturalGradientPerElementScaleComponent,
PerElementOffsetComponent and ScaleAndOffsetComponent (nnet-simple-component.cc).
"""

from __future__ import annotations

import numpy as np

from nnet3tools import tensor
from nnet3tools.nnet.components.array_fields import Preconditioner, Side, Vector
from nnet3tools.nnet.components.base import Array, BackpropArgs, Indexes, Memo, Properties
from nnet3tools.nnet.components.common import (
    as_blocks,
    division_problem,
    get_positive,
    random_normal,
    summed,
)
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


_SMALLEST_SCALE = 1.0e-4
"""Scales closer to zero are replaced by this, so that the input can be recovered."""

_plus = tensor.element("_1 = _2 + _3")
_away_from_zero = tensor.element("_1 = where(abs(_2) >= _3, _2, where(_2 >= 0, _3, -_3))")
_scale_and_shift = tensor.element("_1 = _2 * _3 + _4")
# derivative of the objective with respect to the scale for each row; recovers the input from the
# output
_scale_deriv = tensor.element("_1 = (_2 - _4) / _3 * _5")


@register
class PerElementOffsetComponent(UpdatableComponent):
    """Adds a trainable offset to each column: y = x + offsets.

    The `dim` columns form blocks of `block_dim` columns, which share the `offsets` (block_dim,).
    """

    FORMULA = "y = x + offsets"
    KEYS = "[vector] [dim] block-dim=dim param-mean=0 param-stddev=0"
    PROPERTIES = Properties.IN_PLACE
    INFO = (
        UpdatableComponent.INFO + " offsets_min offsets_max block_dim use_natural_gradient offsets"
    )

    offsets = Vector("<Offsets>", config="vector", key="offsets")
    late_is_gradient = LATE_IS_GRADIENT
    dim = Int("<Dim>", "dim", lambda c: c.block_dim, positive=True, optional=True)
    use_natural_gradient = Flag("<UseNaturalGradient>", "use-natural-gradient", True, optional=True)
    preconditioner = Preconditioner(Side.ROWS, freezes=False, rank=20, update_period=4)
    offsets_min = property(lambda self: summed(_min(self.offsets)))
    offsets_max = property(lambda self: summed(_max(self.offsets)))

    @property
    def properties(self) -> Properties:
        has_blocks = self.block_dim != self.dim
        return self.FLAGS | Properties.OUTPUT_CONTIGUOUS if has_blocks else self.FLAGS

    @property
    def block_dim(self) -> int:
        """Number of columns of a block."""
        return int(self.offsets.shape[0])

    def init_from_config(self, line: ConfigLine) -> None:
        """Read the offsets from a file, or draw `block_dim` random ones."""
        if self.offsets.size == 0:
            block_dim = get_positive(line, "block-dim", get_positive(line, "dim"))
            self.offsets = random_vector(line, block_dim, 0.0)

    def problem(self) -> str | None:
        if self.block_dim == 0:
            return "there are no offsets"
        return division_problem("the number of offsets", self.block_dim, "dim", self.dim)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        if self.block_dim == self.dim:
            _plus(out_value, in_value, self.offsets)
        else:  # only the output is known to be contiguous
            tensor.copy(out_value, in_value)
            tensor.add(as_blocks(out_value, self.block_dim), self.offsets)

    def backprop_input(self, args: BackpropArgs) -> None:
        tensor.copy(args.in_deriv, args.out_deriv)

    def update(self, args: BackpropArgs) -> None:
        derivs = as_blocks(args.out_deriv, self.block_dim)
        update_by_rows(self, self.offsets, derivs, self.preconditioner)


@register
class ScaleAndOffsetComponent(UpdatableComponent):
    """Multiplies each column by a trainable scale and adds a trainable offset.

    y = scales * x + offsets. The `dim` columns form blocks of `block_dim` columns, which share
    `scales` and `offsets` (block_dim,).
    """

    FORMULA = "y = scales x + offsets"
    KEYS = "block-dim=dim"
    PROPERTIES = Properties.IN_PLACE | Properties.BACKPROP_NEEDS_OUTPUT
    INFO = UpdatableComponent.INFO + " rank block_size scales offsets"

    scale_preconditioner = Preconditioner(Side.ROWS, freezes=False, rank=20)
    offset_preconditioner = Preconditioner(Side.ROWS, freezes=False, rank=20)
    dim = Int("<Dim>", "dim", positive=True)
    scales = Vector("<Scales>", key="scales")
    offsets = Vector("<Offsets>", key="offsets")
    use_natural_gradient = Flag("<UseNaturalGradient>", "use-natural-gradient", True)
    rank = Int("<Rank>", "rank", 20, of=("scale_preconditioner.rank", "offset_preconditioner.rank"))

    @property
    def block_dim(self) -> int:
        """Number of columns of a block."""
        return int(self.scales.shape[0])

    @property
    def block_size(self) -> int | None:
        """Number of columns of a block, for info lines; None if there is a single block."""
        return None if self.block_dim == self.dim else self.block_dim

    @property
    def properties(self) -> Properties:
        return self.FLAGS if self.block_dim == self.dim else self.FLAGS | Properties.CONTIGUOUS

    def init_from_config(self, line: ConfigLine) -> None:
        """Start with scales 1 and offsets 0 for the columns of a block (option block-dim)."""
        block_dim = get_positive(line, "block-dim", self.dim)
        self.scales, self.offsets = np.ones(block_dim, np.float32), np.zeros(block_dim, np.float32)
        # Kaldi sets the update period only here: after reading a file it is 1.
        self.scale_preconditioner.update_period = self.offset_preconditioner.update_period = 4

    def problem(self) -> str | None:
        num_scales, num_offsets = self.block_dim, int(self.offsets.shape[0])
        if not num_scales == num_offsets > 0:
            return f"found {num_scales} scales and {num_offsets} offsets"
        return division_problem("block-dim", num_scales, "dim", self.dim)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        x, y = as_blocks(in_value, self.block_dim), as_blocks(out_value, self.block_dim)
        with tensor.scratch(self.scales.shape, like=self.scales) as scales:
            _away_from_zero(scales, self.scales, _SMALLEST_SCALE)
            _scale_and_shift(y, x, scales, self.offsets)

    def backprop(self, args: BackpropArgs) -> None:
        block_dim = self.block_dim
        deriv = as_blocks(args.out_deriv, block_dim)
        if args.to_update is not None:  # first, for in_deriv may be out_deriv
            assert isinstance(args.to_update, ScaleAndOffsetComponent)
            with (
                tensor.scratch(deriv.shape, like=deriv) as scale_derivs,
                tensor.scratch(self.scales.shape, like=self.scales) as scales,
            ):
                _away_from_zero(scales, self.scales, _SMALLEST_SCALE)
                y = as_blocks(args.out_value, block_dim)
                _scale_deriv(scale_derivs, y, scales, self.offsets, deriv)
                args.to_update._update(scale_derivs, deriv)
        if args.in_deriv is not None:
            _multiply(as_blocks(args.in_deriv, block_dim), deriv, self.scales)

    def _update(self, scale_derivs: Array, out_deriv: Array) -> None:
        """Update scales and offsets with natural gradient; overwrites `scale_derivs`.

        The derivatives are of scales and of offsets, (rows, block_dim), to be summed over rows.
        """
        rate = self.rate
        update_by_rows(self, self.offsets, out_deriv, self.offset_preconditioner)
        if self.is_gradient or not self.use_natural_gradient:
            _sum_rows(self.scales, scale_derivs, alpha=rate, beta=1.0)
            return
        add_preconditioned_rows(self.scales, scale_derivs, rate, self.scale_preconditioner)
