"""The nonlinear part of an LSTM cell as one component.

Config, files and statistics: Kaldi's LstmNonlinearityComponent (nnet-combined-component.cc); the
formulas are in `nnet3tools.tensor.lstm`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from nnet3tools import tensor
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    Properties,
    UpdatableComponent,
)
from nnet3tools.nnet.components.common import (
    get_positive,
    optional_field,
    random_normal,
    read_field,
    require,
    rounded_average,
    write_double_field,
    write_field,
)
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.summary import parameter_stats, summarize_vector
from nnet3tools.nnet.derivative_scale import scale_as_derivative
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient
from nnet3tools.tensor.counter import Counter

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["LstmNonlinearityComponent"]

_NONLINEARITIES = ("i_t_sigmoid", "f_t_sigmoid", "c_t_tanh", "o_t_sigmoid", "m_t_tanh")
_TANHS = (2, 4)

_repair_scales = tensor.element("_1 = where(_2 / _3 < _4, _5, 0)")
_count_saturated = tensor.aggregate("where(_1 / _2 < _3, 1.0, 0.0)", "sum", axis=1)


@register
class LstmNonlinearityComponent(UpdatableComponent):
    """[x_i, x_f, x_c, x_o, c(t-1)(, 3 dropout scales)] -> [c(t), m(t)], with peephole weights.

    `params` (3, cell_dim); `value_sum` and `deriv_sum` (5, cell_dim), float64, sum the values and
    derivatives of the five nonlinearities over `count` rows; `self_repair_total` (5,) counts the
    units repaired; `self_repair_config` (10,) holds five thresholds, then five scales.
    """

    count = Counter()

    def __init__(self, params: Array, use_dropout: bool = False) -> None:
        self.params = params
        self.use_dropout = use_dropout
        shape = (5, self.cell_dim)
        self.value_sum = tensor.zeros(shape, dtype=np.float64)
        self.deriv_sum = tensor.zeros(shape, dtype=np.float64)
        self.self_repair_config = np.zeros(10, np.float32)
        self.self_repair_total = np.zeros(5, np.float64)
        self.count = 0.0
        # Only sums over minibatches are preconditioned: little data, so a small quick estimate.
        self.preconditioner = OnlineNaturalGradient(20, 2, 1000.0)

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
    def properties(self) -> Properties:
        return Properties.SIMPLE | Properties.UPDATABLE | Properties.BACKPROP_NEEDS_INPUT

    def parameters(self) -> dict[str, Array]:
        return {"params": self.params}

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
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
        component = cls(random_normal((3, cell_dim), stddev), line.get_bool("use-dropout", False))
        component.read_updatable_config(line)
        component.self_repair_config[:5] = sigmoid_threshold
        component.self_repair_config[list(_TANHS)] = tanh_threshold
        component.self_repair_config[5:] = scale
        return component

    # -- files: averages instead of sums

    @classmethod
    def read(cls, reader: Reader) -> Self:
        component = cls(tensor.zeros((3, 0)))
        component.read_updatable_common(reader)
        component.params = read_field(reader, "<Params>", reader.read_matrix)
        require(reader, component.params.shape[0] == 3, "LSTM parameters must have three rows")
        shape = (5, component.cell_dim)
        averages = [
            read_field(reader, token, lambda: reader.read_matrix(np.float64))
            for token in ("<ValueAvg>", "<DerivAvg>")
        ]
        require(reader, all(a.shape == shape for a in averages), f"expected statistics of {shape}")
        component.self_repair_config = read_field(reader, "<SelfRepairConfig>", reader.read_vector)
        require(reader, len(component.self_repair_config) == 10, "expected ten numbers")
        repaired = read_field(reader, "<SelfRepairProb>", lambda: reader.read_vector(np.float64))
        require(reader, len(repaired) == 5, "expected five numbers in <SelfRepairProb>")
        component.use_dropout = optional_field(reader, "<UseDropout>", reader.read_bool, False)
        component.count = count = read_field(reader, "<Count>", reader.read_double)
        component.value_sum, component.deriv_sum = (a * count for a in averages)
        component.self_repair_total = repaired * (count * component.cell_dim)
        reader.expect_token(f"</{cls.type_name}>")
        return component

    def write(self, writer: Writer) -> None:
        self.write_updatable_common(writer)
        write_field(writer, "<Params>", self.params)
        for token, total in (("<ValueAvg>", self.value_sum), ("<DerivAvg>", self.deriv_sum)):
            write_field(writer, token, rounded_average(total, self.count))
        write_field(writer, "<SelfRepairConfig>", self.self_repair_config)
        repaired = rounded_average(self.self_repair_total, self.count * self.cell_dim)
        write_field(writer, "<SelfRepairProb>", repaired)
        if self.use_dropout:
            write_field(writer, "<UseDropout>", True)
        write_double_field(writer, "<Count>", self.count)
        writer.write_token(f"</{self.type_name}>")

    def info(self) -> str:
        parts = [
            f"{super().info()}, cell-dim={self.cell_dim}"
            f", use-dropout={'true' if self.use_dropout else 'false'}"
        ]
        for name, row in zip(("w_ic", "w_fc", "w_oc"), self.params, strict=True):
            parts.append(parameter_stats(name, row))
        if self.count > 0:
            parts.append(f", count={self.count:.3g}")
        for k, name in enumerate(_NONLINEARITIES):
            config = tensor.to_host(self.self_repair_config)
            parts.append(
                f", {name}={{ self-repair-lower-threshold={config[k]:g}"
                f", self-repair-scale={config[k + 5]:g}"
            )
            if self.count != 0.0:
                repaired = float(tensor.to_host(self.self_repair_total)[k])
                proportion = repaired / (self.count * self.cell_dim)
                value_avg = tensor.to_host(self.value_sum[k]) / self.count
                deriv_avg = tensor.to_host(self.deriv_sum[k]) / self.count
                parts.append(f", self-repaired-proportion={proportion:g}")
                parts.append(f", value-avg={summarize_vector(value_avg)}")
                parts.append(f", deriv-avg={summarize_vector(deriv_avg)}")
            parts.append(" }")
        return "".join(parts)

    # -- running

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """A cell: three gates of peephole, sum and sigmoid (9), two tanh, c (3) and m (1)."""
        return rows * self.output_dim // 2 * 15

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        tensor.lstm_nonlinearity(out_value, in_value, self.params)

    def backprop(self, args: BackpropArgs) -> None:
        assert args.in_value is not None
        with (
            tensor.scratch((5, self.cell_dim), like=args.in_value) as repair,
            tensor.scratch((3, self.cell_dim), like=args.in_value) as params_deriv,
        ):
            # 1 is added to the count so that nothing is divided by zero at first.
            thresholds = self.self_repair_config[:5, None]
            scales = self.self_repair_config[5:, None]
            _repair_scales(repair, self.deriv_sum, self.count + 1.0, thresholds, scales)
            scale_as_derivative(repair)
            operands = (args.in_value, self.params, args.out_deriv, repair, args.in_deriv)
            if args.to_update is None:
                tensor.lstm_nonlinearity_backprop(*operands)
                return
            assert isinstance(args.to_update, LstmNonlinearityComponent)
            # Before the sums below change: they may be those that decided on the repairs.
            _count_saturated(
                args.to_update.self_repair_total, self.deriv_sum, self.count + 1.0, thresholds,
                alpha=args.in_value.shape[0], beta=1.0,
            )  # fmt: skip
            tensor.lstm_nonlinearity_backprop(
                *operands, params_deriv, args.to_update.value_sum, args.to_update.deriv_sum
            )
            args.to_update.count += args.in_value.shape[0]
            args.to_update._update(params_deriv)

    def _update(self, params_deriv: Array) -> None:
        scale = 1.0
        if not self.is_gradient:
            scale = self.preconditioner.precondition(params_deriv)
        tensor.add(self.params, params_deriv, alpha=self.learning_rate * scale)

    # -- training

    def freeze_natural_gradient(self, freeze: bool) -> None:
        self.preconditioner.frozen = freeze

    def zero_stats(self) -> None:
        for total in (self.value_sum, self.deriv_sum, self.self_repair_total):
            tensor.fill(total, 0.0)
        self.count = 0.0

    def scale(self, scale: float) -> None:
        super().scale(scale)
        if scale == 0.0:
            self.zero_stats()
            return
        for total in (self.value_sum, self.deriv_sum, self.self_repair_total):
            tensor.scale(total, scale)
        self.count *= scale

    def add(self, alpha: float, other: Component) -> None:
        super().add(alpha, other)
        assert isinstance(other, LstmNonlinearityComponent)
        tensor.add(self.value_sum, other.value_sum, alpha=alpha)
        tensor.add(self.deriv_sum, other.deriv_sum, alpha=alpha)
        tensor.add(self.self_repair_total, other.self_repair_total, alpha=alpha)
        if other.count != 0.0:
            self.count += alpha * other.count
