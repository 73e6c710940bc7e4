"""Element-wise nonlinearities with self-repair: rectified linear, sigmoid, tanh.

Self-repair adds a small term to the derivative of dimensions that are saturated on average, which
pushes their inputs back. Formulas and thresholds: Kaldi's nnet-simple-component.cc.
"""

from __future__ import annotations

from typing import Any, ClassVar

from nnet3tools import tensor
from nnet3tools.io.stream import Reader
from nnet3tools.nnet.components.activation_stats import (
    REPAIR_PROBABILITY,
    UNSET_THRESHOLD,
    NonlinearComponent,
)
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    Properties,
)
from nnet3tools.nnet.components.common import as_blocks, summed
from nnet3tools.nnet.components.fields import Float, Int, Obsolete
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.config import ConfigLine
from nnet3tools.nnet.derivative_scale import as_derivative
from nnet3tools.tensor import recording

_mean_rows = tensor.aggregate("_1", "mean", axis=0)
_sum_sizes = tensor.aggregate("abs(_1)", "sum", axis=None)
# +1: dead unit (low mean derivative), -1: unit always on, 0: other units
_relu_state = tensor.element("_1 = 1 - where(_2 > _3, 1, 0) - where(_2 > _4, 1, 0)")
_is_saturated = tensor.element("_1 = where(_2 < _3, 1, 0)")
_add_rows = tensor.element("_1 += _2 * _3")


class _SelfRepairing(NonlinearComponent):
    """Base class of ReLU, sigmoid and tanh: corrects gradients of dead or saturated units.

    Subclasses give the formulas of the output (`function`) and of the input derivative.
    """

    PROPERTIES = Properties.BACKPROP_NEEDS_OUTPUT | Properties.PROPAGATE_IN_PLACE

    function: ClassVar[tensor.Element]
    """The output, as a function of the input."""
    derivative: ClassVar[tensor.Element]
    """The input derivative, as a function of the output and its derivative."""

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        self.function(out_value, in_value)

    def backprop(self, args: BackpropArgs) -> None:
        self.derivative(args.in_deriv, args.out_value, args.out_deriv)
        if args.to_update is not None:
            assert isinstance(args.to_update, _SelfRepairing)
            self._count_dims(args.to_update)
            if recording.decide(self._can_repair):
                with recording.optional(self._repairs_now, args.in_deriv) as is_now:
                    if is_now:
                        self._repair_gradients(args.out_value, args.in_deriv, args.to_update)
            args.to_update.store_backprop_stats(args.out_deriv)

    def init_from_config(self, line: ConfigLine) -> None:
        """Raise ConfigError for impossible self-repair options; model files may have any values."""
        if self.self_repair_scale != 0.0 and not 0.0 < self.self_repair_scale < 0.1:
            raise line.error(
                f"self-repair-scale must be in (0, 0.1) or 0, found {self.self_repair_scale:g}"
            )

    def _repair_gradients(
        self, out_value: Array, in_deriv: Array, to_update: NonlinearComponent
    ) -> None:
        raise NotImplementedError

    def _count_dims(self, to_update: NonlinearComponent) -> None:
        """Add `dim` to `to_update.num_dims_processed`; does nothing except in sigmoid and tanh."""

    def _can_repair(self) -> bool:
        """Whether self-repair is enabled and there are statistics."""
        no_counts = self.self_repair_scale == 0.0 or self.count.is_zero()
        return not no_counts and self._fits(self.deriv_sum)

    def _repairs_now(self) -> bool:
        """Choose at random whether self-repair runs in this minibatch."""
        return bool(tensor.random.rand_uniform() <= REPAIR_PROBABILITY)

    def _threshold(self, configured: float, default: float) -> float:
        """`count` times the threshold `configured` or, if that is UNSET_THRESHOLD, `default`."""
        return (default if configured == UNSET_THRESHOLD else configured) * self.count

    def _repair_scale(self) -> Any:
        return as_derivative(self.self_repair_scale / REPAIR_PROBABILITY)


@register
class RectifiedLinearComponent(_SelfRepairing):
    """The rectified linear unit: y = max(x, 0)."""

    FORMULA = "y = max(x, 0)"
    KEYS = "self-repair-lower-threshold=0.05 self-repair-upper-threshold=0.95"
    backprop_reads_signs_only = True
    function = tensor.element("_1 = max(_2, 0)")
    derivative = tensor.element("_1 = where(_2 > 0, _3, 0)")
    sum_derivatives = tensor.aggregate("where(_1 > 0, 1, 0)", "sum", axis=0)

    @property
    def properties(self) -> Properties:
        blocks = self.block_dim != self.dim
        return super().properties | (Properties.INPUT_CONTIGUOUS if blocks else Properties(0))

    def _repair_gradients(
        self, out_value: Array, in_deriv: Array, to_update: NonlinearComponent
    ) -> None:
        """Change `in_deriv` to raise inputs of dead units and lower those of always-on units."""
        assert self.deriv_sum is not None
        to_update.num_dims_processed += self.block_dim
        lower = self._threshold(self.self_repair_lower_threshold, 0.05)
        upper = self._threshold(self.self_repair_upper_threshold, 0.95)
        with (
            tensor.scratch((self.block_dim,), like=in_deriv) as state,
            tensor.scratch((self.block_dim,), like=in_deriv) as deriv,
        ):
            _mean_rows(deriv, self.deriv_sum.reshape(-1, self.block_dim))
            _relu_state(state, deriv, lower, upper)
            to_update.num_dims_self_repaired += summed(_sum_sizes(state))
            _add_rows(as_blocks(in_deriv, self.block_dim), state, self._repair_scale())


class _TwoSided(_SelfRepairing):
    """Base class of sigmoid and tanh; self-repair draws inputs of saturated units toward 0.

    A unit is saturated if its mean derivative is below the threshold. `repair` changes in_deriv.
    """

    default_lower_threshold: float
    repair: ClassVar[tensor.Element]
    """Adds the repair to an input derivative: of output, mask of saturated units, and scale."""

    def _count_dims(self, to_update: NonlinearComponent) -> None:
        to_update.num_dims_processed += self.dim

    def init_from_config(self, line: ConfigLine) -> None:
        super().init_from_config(line)
        if self.self_repair_upper_threshold != UNSET_THRESHOLD and self.self_repair_scale != 0.0:
            raise line.error(
                f"self-repair-upper-threshold does nothing in {self.type_name}: leave it out"
            )

    def _repair_gradients(
        self, out_value: Array, in_deriv: Array, to_update: NonlinearComponent
    ) -> None:
        lower = self._threshold(self.self_repair_lower_threshold, self.default_lower_threshold)
        with tensor.scratch((self.dim,), like=in_deriv) as saturated:
            _is_saturated(saturated, self.deriv_sum, lower)
            to_update.num_dims_self_repaired += summed(_sum_sizes(saturated))
            self.repair(in_deriv, out_value, saturated, self._repair_scale())


@register
class SigmoidComponent(_TwoSided):
    """The sigmoid nonlinearity: y = 1 / (1 + exp(-x)). Its derivative is at most 0.25."""

    FORMULA = "y = 1 / (1 + exp(-x))"
    KEYS = "self-repair-lower-threshold=0.05"
    function = tensor.element("_1 = sigmoid(_2)")
    derivative = tensor.element("_1 = _3 * _2 * (1 - _2)")
    sum_derivatives = tensor.aggregate("_1 * (1 - _1)", "sum", axis=0)
    default_lower_threshold = 0.05
    repair = tensor.element("_1 += _4 * _3 * (1 - 2 * _2)")


@register
class TanhComponent(_TwoSided):
    """The tanh nonlinearity: y = tanh(x). Its derivative is at most 1."""

    FORMULA = "y = tanh(x)"
    KEYS = "self-repair-lower-threshold=0.2"
    function = tensor.element("_1 = tanh(_2)")
    derivative = tensor.element("_1 = _3 * (1 - _2 * _2)")
    sum_derivatives = tensor.aggregate("1 - _1 * _1", "sum", axis=0)
    default_lower_threshold = 0.2
    repair = tensor.element("_1 -= _4 * _3 * _2")


_scaled_copy = tensor.element("_1 = _2 * _3")


class _BackpropScale(Float):
    """Field for the backprop scale; it is optional in files of Kaldi's older NoOpComponent."""

    def read(self, reader: Reader, owner: Any) -> None:
        if reader.peek_token() != "<ValueAvg>":
            super().read(reader, owner)


@register
class NoOpComponent(Component):
    """Copies its input; multiplies the derivative by `backprop_scale`."""

    FORMULA = "y = x; dx = backprop-scale dy"
    PROPERTIES = Properties.IN_PLACE
    INFO = "dim backprop_scale"
    flops_per_input = 0  # moves only

    dim = Int("<Dim>", "dim", positive=True)
    backprop_scale = _BackpropScale("<BackpropScale>", "backprop-scale", 1.0, show_default=False)
    value_avg = Obsolete("<ValueAvg>", "read_vector")
    deriv_avg = Obsolete("<DerivAvg>", "read_vector")
    count = Obsolete("<Count>")
    oderiv_rms = Obsolete("<OderivRms>", "read_vector")
    oderiv_count = Obsolete("<OderivCount>")
    num_dims_self_repaired = Obsolete("<NumDimsSelfRepaired>")
    num_dims_processed = Obsolete("<NumDimsProcessed>")

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        tensor.copy(out_value, in_value)

    def backprop(self, args: BackpropArgs) -> None:
        if self.backprop_scale == 1.0:
            tensor.copy(args.in_deriv, args.out_deriv)
        else:
            _scaled_copy(args.in_deriv, args.out_deriv, self.backprop_scale)
