"""The nonlinear parts of GRU cells.

    h(t) = tanh(a),  c(t) = (1 - z) * h(t) + z * c(t-1)

with a = x_h + W (r * s(t-1)), or a = x_h + w * c(t-1) for the output-gated kind; the shape of the
weights says which (nnet3tools.tensor.gru). Formulas, config and files: Kaldi's
GruNonlinearityComponent and OutputGruNonlinearityComponent (nnet-combined-component.{h,cc}).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

from nnet3tools import tensor
from nnet3tools.nnet.components.array_fields import Count, Matrix, Preconditioner, Statistic, Vector
from nnet3tools.nnet.components.base import Array, BackpropArgs, Indexes, Memo, Properties
from nnet3tools.nnet.components.common import random_normal, summed
from nnet3tools.nnet.components.fields import Float, Int, NotNegative
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.scale_offset import add_preconditioned_rows
from nnet3tools.nnet.components.summary import parameter_stats, summarize_vector
from nnet3tools.nnet.components.two_sided import ALPHA, UPDATE_PERIOD, TwoSidedNaturalGradient
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.nnet.config import ConfigLine
from nnet3tools.nnet.derivative_scale import scale_as_derivative
from nnet3tools.tensor import recording
from nnet3tools.tensor.cells import gru_parts

_REPAIR_PROBABILITY = 0.5
"""Statistics and self-repair run on about this proportion of minibatches."""

_needs_repair = tensor.element("_1 = where(_2 < _3, 1, 0)")
_sum = tensor.aggregate("_1", "sum", axis=0)
_sum_tanh_derivs = tensor.aggregate("1 - _1 * _1", "sum", axis=0)
_total = tensor.aggregate("_1", "sum", axis=None)
_multiply = tensor.element("_1 = _2 * _3")
_sum_products = tensor.aggregate("_1 * _2", "sum", axis=0)


class GruNonlinearityBase(UpdatableComponent):
    """Base class of the two GRU cells: statistics of tanh, self-repair, propagate, backprop.

    `value_sum` and `deriv_sum` (cell_dim,) are float64 sums over `count` rows. `w_h` is the
    recurrent weights. INFO_OF_UPDATE names options of natural gradient at the end of the info line.
    """

    PROPERTIES = (
        Properties.BACKPROP_NEEDS_INPUT
        | Properties.BACKPROP_NEEDS_OUTPUT
        | Properties.BACKPROP_ADDS
    )
    INFO = UpdatableComponent.INFO + " cell_dim"
    INFO_OF_UPDATE: ClassVar[str]
    w_h: Array
    cell_dim = Int("<CellDim>", "cell-dim", positive=True)
    value_sum = Statistic("<ValueAvg>", "count", shape=lambda c: (c.cell_dim,))
    deriv_sum = Statistic("<DerivAvg>", "count", shape=lambda c: (c.cell_dim,))
    self_repair_total = Count("<SelfRepairTotal>")
    count = Count("<Count>")
    self_repair_threshold = NotNegative("<SelfRepairThreshold>", "self-repair-threshold", 0.2)
    self_repair_scale = NotNegative("<SelfRepairScale>", "self-repair-scale", 1.0e-05)

    @property
    def output_dim(self) -> int:
        return 2 * self.cell_dim

    def info(self) -> str:
        parts = [super().info(), parameter_stats("w_h", self.w_h)]
        parts.append(self.info_of("self_repair_threshold self_repair_scale"))
        if self.count.is_positive():
            proportion = self.self_repair_total / (self.count * self.cell_dim)
            parts.append(f"count={self.count:.3g}, self-repaired-proportion={proportion:g}")
            for name, total in (("value", self.value_sum), ("deriv", self.deriv_sum)):
                average = tensor.to_host(total) / self.count
                parts.append(f"{name}-avg={summarize_vector(average)}")
        return ", ".join([*parts, self.info_of(self.INFO_OF_UPDATE)])

    # -- running

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        tensor.gru_nonlinearity(out_value, in_value, self.w_h)

    def backprop(self, args: BackpropArgs) -> None:
        h = args.out_value[:, : self.cell_dim]
        with (
            tensor.scratch(h.shape, like=h) as argument_deriv,
            tensor.scratch((self.cell_dim,), like=h) as repair,
        ):
            repaired = None
            if args.to_update is not None:
                assert isinstance(args.to_update, GruNonlinearityBase)
                repaired = repair if args.to_update.stats_and_repair(h, repair) else None
            tensor.gru_nonlinearity_backprop(
                args.in_value,
                self.w_h,
                args.out_value,
                args.out_deriv,
                argument_deriv,
                args.in_deriv,
                repaired,
            )
            if args.to_update is not None:
                args.to_update.update_weights(args.in_value, argument_deriv)

    def stats_and_repair(self, h: Array, repair: Array) -> bool:
        """Add tanh values `h` to statistics; set `repair` (cell_dim,) to factors that pull h to 0.

        The factors are 0 except for saturated units. On half of the minibatches nothing is done,
        and the result is False.
        """
        if recording.decide(lambda: tensor.random.rand_uniform() > _REPAIR_PROBABILITY):
            return False
        self.count += h.shape[0]
        _sum(self.value_sum, h, beta=1.0)
        _sum_tanh_derivs(self.deriv_sum, h, beta=1.0)
        if not self.count.is_positive():  # in a difference of models
            return False
        _needs_repair(repair, self.deriv_sum, self.self_repair_threshold * self.count)
        self.self_repair_total += summed(_total(repair))
        tensor.scale(repair, self.self_repair_scale / _REPAIR_PROBABILITY)
        scale_as_derivative(repair)
        return True

    @abstractmethod
    def update_weights(self, in_value: Array, argument_deriv: Array) -> None:
        """Update w_h from the input and `argument_deriv`, derivatives at tanh's argument.

        The change is preconditioned unless a gradient is accumulated. May overwrite
        `argument_deriv`.
        """


@register
class GruNonlinearityComponent(GruNonlinearityBase, TwoSidedNaturalGradient):
    """GRU cell: [z, r, x_h, c(t-1), s(t-1)] -> [h, c]; `w_h` (cell_dim, recurrent_dim).

    Without projection, the recurrent value s(t-1) is c(t-1) and not repeated. With projection, r
    and s are smaller than the cell.
    """

    FORMULA = "h = tanh(x_h + W_h (r s(t-1))), c = (1 - z) h + z c(t-1)"
    KEYS = "param-stddev=1/sqrt(cell-dim)"
    INFO = GruNonlinearityBase.INFO + " recurrent_dim"
    INFO_OF_UPDATE = "alpha rank_in rank_out update_period"

    recurrent_dim = Int("<RecurrentDim>", "recurrent-dim", lambda c: c.cell_dim)
    w_h = Matrix("<w_h>")
    # files have the statistics after the weights
    value_sum, deriv_sum = GruNonlinearityBase.value_sum, GruNonlinearityBase.deriv_sum
    self_repair_total, count = GruNonlinearityBase.self_repair_total, GruNonlinearityBase.count
    self_repair_threshold = GruNonlinearityBase.self_repair_threshold
    self_repair_scale = GruNonlinearityBase.self_repair_scale
    alpha = ALPHA
    rank_in = Int("<RankInOut>", "rank-in", 20, of="preconditioner_in.rank")
    rank_out = Int("", "rank-out", 80, of="preconditioner_out.rank")
    update_period = UPDATE_PERIOD

    @property
    def input_dim(self) -> int:
        if self.recurrent_dim == self.cell_dim:
            return 4 * self.cell_dim
        return 3 * self.cell_dim + 2 * self.recurrent_dim

    def init_from_config(self, line: ConfigLine) -> None:
        """Draw random weights; a negative recurrent-dim stands for cell-dim."""
        if self.recurrent_dim < 0:
            self.recurrent_dim = self.cell_dim
        shape = self.cell_dim, self.recurrent_dim
        if not 0 < self.recurrent_dim <= self.cell_dim:
            raise line.error(f"recurrent-dim must be in [1, {shape[0]}], found {shape[1]}")
        stddev = line.get_float("param-stddev", 1.0 / math.sqrt(self.cell_dim))
        self.w_h = random_normal(shape, stddev)

    def problem(self) -> str | None:
        shape = self.cell_dim, self.recurrent_dim
        return None if self.w_h.shape == shape else f"expected <w_h> of shape {shape}"

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Number of operations: a product with w_h, and 9 per cell."""
        return 2 * rows * int(self.w_h.size) + 9 * rows * self.cell_dim

    def update_weights(self, in_value: Array, argument_deriv: Array) -> None:
        parts, rate = gru_parts(in_value, self.w_h), self.rate
        with tensor.scratch((len(in_value), self.recurrent_dim), like=in_value) as gated:
            _multiply(gated, parts.reset, parts.state)
            if not self.is_gradient:
                rate = self.precondition(gated, argument_deriv)
            tensor.prod(self.w_h, argument_deriv, gated, trans_a=True, alpha=rate, beta=1.0)


@register
class OutputGruNonlinearityComponent(GruNonlinearityBase):
    """Output-gated GRU cell: [z, x_h, c(t-1)] -> [h, c]; `w_h` is (cell_dim,)."""

    FORMULA = "h = tanh(x_h + w_h c(t-1)), c = (1 - z) h + z c(t-1)"
    KEYS = "param-mean=0 param-stddev=1"
    INFO_OF_UPDATE = "alpha rank update_period"

    w_h = Vector("<w_h>")
    # files have the statistics after the weights
    value_sum, deriv_sum = GruNonlinearityBase.value_sum, GruNonlinearityBase.deriv_sum
    self_repair_total, count = GruNonlinearityBase.self_repair_total, GruNonlinearityBase.count
    self_repair_threshold = GruNonlinearityBase.self_repair_threshold
    self_repair_scale = GruNonlinearityBase.self_repair_scale
    alpha = Float("<Alpha>", "alpha", 4.0, of="preconditioner.alpha")
    rank = Int("<Rank>", "rank", 8, of="preconditioner.rank")
    update_period = Int("<UpdatePeriod>", "update-period", 10, of="preconditioner.update_period")
    preconditioner = Preconditioner()

    @property
    def input_dim(self) -> int:
        return 3 * self.cell_dim

    def init_from_config(self, line: ConfigLine) -> None:
        mean, stddev = line.get_float("param-mean", 0.0), line.get_float("param-stddev", 1.0)
        self.w_h = random_normal((self.cell_dim,), stddev, mean)

    def problem(self) -> str | None:
        dim = self.cell_dim
        return None if self.w_h.shape == (dim,) else f"expected <w_h> of {dim} numbers"

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Number of operations; per cell: sigmoid, w * c, sum, tanh, 4 of interpolation."""
        return 8 * rows * self.cell_dim

    def update_weights(self, in_value: Array, argument_deriv: Array) -> None:
        previous = gru_parts(in_value, self.w_h).cell
        if self.is_gradient:
            _sum_products(self.w_h, argument_deriv, previous, alpha=self.rate, beta=1.0)
            return
        _multiply(argument_deriv, argument_deriv, previous)
        add_preconditioned_rows(self.w_h, argument_deriv, self.rate, self.preconditioner)
