"""LstmNonlinearityComponent: the nonlinear part of an LSTM cell as one component.

Config, files and statistics: Kaldi's LstmNonlinearityComponent (nnet-combined-component.cc). The
formulas are in `nnet3tools.tensor.lstm`.
"""

from __future__ import annotations

import numpy as np

from nnet3tools import tensor
from nnet3tools.nnet.components.array_fields import Count, Matrix, Preconditioner, Statistic, Vector
from nnet3tools.nnet.components.base import Array, BackpropArgs, Indexes, Memo, Properties
from nnet3tools.nnet.components.common import get_positive, random_normal
from nnet3tools.nnet.components.fields import Flag
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.summary import parameter_stats, summarize_vector
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.nnet.config import ConfigLine
from nnet3tools.nnet.derivative_scale import scale_as_derivative

_NONLINEARITIES = ("i_t_sigmoid", "f_t_sigmoid", "c_t_tanh", "o_t_sigmoid", "m_t_tanh")
_TANHS = (2, 4)

_repair_scales = tensor.element("_1 = where(_2 / _3 < _4, _5, 0)")
_count_saturated = tensor.aggregate("where(_1 / _2 < _3, 1.0, 0.0)", "sum", axis=1)


def _split(sums: Array) -> dict[str, Array]:
    """The parts of `LstmNonlinearityComponent`'s sums, by the names of the operator's arguments."""
    return {"params_sum": sums[:3], "value_sum": sums[3:8], "deriv_sum": sums[8:]}


@register
class LstmNonlinearityComponent(UpdatableComponent):
    """LSTM cell with peepholes: [x_i, x_f, x_c, x_o, c(t-1)(, 3 dropout scales)] -> [c(t), m(t)].

    `params` (3, cell_dim) are peephole weights. Over `count` rows, `value_sum` and `deriv_sum` (5,
    cell_dim) sum values and derivatives of the five nonlinearities in float64. `self_repair_total`
    (5,) counts repaired units; `self_repair_config` (10,) holds five thresholds, then five scales.
    """

    FORMULA = (
        "c = sigmoid(x_f + w_fc c(t-1)) c(t-1) + sigmoid(x_i + w_ic c(t-1)) tanh(x_c), m = "
        "sigmoid(x_o + w_oc c) tanh(c)"
    )
    KEYS = (
        "cell-dim param-stddev=1 tanh-self-repair-threshold=0.2 "
        "sigmoid-self-repair-threshold=0.05 self-repair-scale=1e-05"
    )
    PROPERTIES = Properties.BACKPROP_NEEDS_INPUT
    INFO = UpdatableComponent.INFO + " cell_dim use_dropout"

    params = Matrix("<Params>")
    value_sum = Statistic("<ValueAvg>", "count", ndim=2, shape=lambda c: (5, c.cell_dim))
    deriv_sum = Statistic("<DerivAvg>", "count", ndim=2, shape=lambda c: (5, c.cell_dim))
    self_repair_config = Vector("<SelfRepairConfig>", trainable=False)
    self_repair_total = Statistic("<SelfRepairProb>", "num_units_seen", shape=lambda c: (5,))
    use_dropout = Flag("<UseDropout>", "use-dropout", False, omit=True, show_default=True)
    count = Count("<Count>")
    # Only sums over minibatches are preconditioned: few samples, so a small, fast estimate.
    preconditioner = Preconditioner(rank=20, update_period=2, num_samples_history=1000.0)

    @property
    def cell_dim(self) -> int:
        """Number of memory cells."""
        return int(self.params.shape[1])

    @property
    def input_dim(self) -> int:
        return 5 * self.cell_dim + (3 if self.use_dropout else 0)

    @property
    def output_dim(self) -> int:
        return 2 * self.cell_dim

    @property
    def num_units_seen(self) -> float:
        """Number of cells times the number of rows in the statistics."""
        return self.count * self.cell_dim

    @property
    def sums_shape(self) -> tuple[int, ...]:
        return 3 + 5 + 5, self.cell_dim

    def init_from_config(self, line: ConfigLine) -> None:
        """Draw random peephole weights; read a scale and thresholds of self-repair."""
        cell_dim = get_positive(line, "cell-dim")
        stddev = line.get_float("param-stddev", 1.0)
        tanh_threshold = line.get_float("tanh-self-repair-threshold", 0.2)
        sigmoid_threshold = line.get_float("sigmoid-self-repair-threshold", 0.05)
        scale = line.get_float("self-repair-scale", 1.0e-05)
        for key, value, high in (
            ("param-stddev", stddev, np.inf),
            ("tanh-self-repair-threshold", tanh_threshold, 1.0),
            ("sigmoid-self-repair-threshold", sigmoid_threshold, 0.25),
            ("self-repair-scale", scale, 0.1),
        ):
            if not 0.0 <= value <= np.float32(high):
                raise line.error(f"{key} must be in [0, {high:g}], found {value:g}")
        self.params = random_normal((3, cell_dim), stddev)
        self.self_repair_config = np.repeat(np.array([sigmoid_threshold, scale], np.float32), 5)
        self.self_repair_config[list(_TANHS)] = tanh_threshold

    def problem(self) -> str | None:
        if self.params.shape[0] != 3:
            return "LSTM parameters must have three rows"
        number = self.self_repair_config.size
        return None if number == 10 else f"<SelfRepairConfig> must be ten numbers, found {number}"

    def info(self) -> str:
        parts = [super().info()]
        for name, row in zip(("w_ic", "w_fc", "w_oc"), self.params, strict=True):
            parts.append(parameter_stats(name, row))
        if self.count.is_positive():
            parts.append(f"count={self.count:.3g}")
        return ", ".join([*parts, *map(self._info_of_nonlinearity, range(5))])

    def _info_of_nonlinearity(self, k: int) -> str:
        config = tensor.to_host(self.self_repair_config)
        text = f"self-repair-lower-threshold={config[k]:g}, self-repair-scale={config[k + 5]:g}"
        if not self.count.is_zero():
            repaired = float(tensor.to_host(self.self_repair_total)[k])
            text += f", self-repaired-proportion={repaired / self.num_units_seen:g}"
            for name, total in (("value", self.value_sum), ("deriv", self.deriv_sum)):
                average = summarize_vector(tensor.to_host(total[k]) / self.count)
                text += f", {name}-avg={average}"
        return f"{_NONLINEARITIES[k]}={{ {text} }}"

    # -- running

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Number of operations: for each cell 9 in the gates, 2 tanh, 3 for c and 1 for m."""
        return rows * self.output_dim // 2 * 15

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        tensor.lstm_nonlinearity(out_value, in_value, self.params)

    def backprop(self, args: BackpropArgs) -> None:
        with (
            tensor.scratch((5, self.cell_dim), like=args.in_value) as repair,
            tensor.scratch((3, self.cell_dim), like=args.in_value) as params_deriv,
        ):
            # Adding 1 to the count avoids a division by zero before the first minibatch.
            thresholds = self.self_repair_config[:5, None]
            scales = self.self_repair_config[5:, None]
            _repair_scales(repair, self.deriv_sum, self.count + 1.0, thresholds, scales)
            scale_as_derivative(repair)
            operands = (args.in_value, self.params, args.out_deriv, repair, args.in_deriv)
            sums = {} if args.memo is None else _split(args.memo)
            if args.to_update is None:
                tensor.lstm_nonlinearity_backprop(*operands, **sums)
                return
            assert isinstance(args.to_update, LstmNonlinearityComponent)
            # Before the sums change below, because they may be those that decided on the repairs.
            _count_saturated(
                args.to_update.self_repair_total, self.deriv_sum, self.count + 1.0, thresholds,
                alpha=args.in_value.shape[0], beta=1.0,
            )  # fmt: skip
            totals = args.to_update.value_sum, args.to_update.deriv_sum
            if sums:
                tensor.copy(params_deriv, sums["params_sum"])
                tensor.add(totals[0], sums["value_sum"])
                tensor.add(totals[1], sums["deriv_sum"])
            else:
                tensor.lstm_nonlinearity_backprop(*operands, params_deriv, *totals)
            args.to_update.count += args.in_value.shape[0]
            args.to_update._update(params_deriv)

    def _update(self, params_deriv: Array) -> None:
        scale = 1.0
        if not self.is_gradient:
            scale = self.preconditioner.precondition(params_deriv)
        tensor.add(self.params, params_deriv, alpha=self.rate * scale)
