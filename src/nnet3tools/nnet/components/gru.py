"""The nonlinear part of GRU cells: GruNonlinearityComponent and OutputGruNonlinearityComponent.

    h(t) = tanh(x_h + W (r * s(t-1)))     (the output-gated kind: tanh(x_h + w * c(t-1)))
    c(t) = (1 - z) * h(t) + z * c(t-1)

Formulas, config, files and statistics: Kaldi's nnet-combined-component.{h,cc}.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Self

import numpy as np

from nnet3tools import tensor
from nnet3tools.nnet.components.base import (
    Array,
    Component,
    PrecomputedIndexes,
    Properties,
    UpdatableComponent,
)
from nnet3tools.nnet.components.common import (
    checked_natural_gradient,
    get_positive,
    rand_uniform,
    random_normal,
    read_field,
    require,
    rounded_average,
    write_double_field,
    write_field,
)
from nnet3tools.nnet.components.per_element import add_preconditioned_rows
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.summary import parameter_stats, summarize_vector
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["GruNonlinearityComponent", "OutputGruNonlinearityComponent"]

_REPAIR_PROBABILITY = 0.5
"""Statistics and self-repair run on about this part of the minibatches."""

_multiply = tensor.element("_1 = _2 * _3")
_add_product = tensor.element("_1 += _2 * _3")
_finish_cell = tensor.element("_1 = tanh(_1); _2 = (1 - _3) * _1 + _3 * _4")
_peephole_argument = tensor.element("_1 = _2 + _3 * _4")
# (_1: derivative at the argument of tanh) of (_2 at h, _3 at c, _4 z, _5 h)
_tanh_argument_deriv = tensor.element("_1 = (_2 + _3 * (1 - _4)) * (1 - _5 * _5)")
_add_z_deriv = tensor.element("_1 += _2 * (_3 - _4)")
_repair = tensor.element("_1 -= _2 * _3 * _4")
_needs_repair = tensor.element("_1 = where(_2 < _3, 1, 0)")
_sum = tensor.aggregate("_1", "sum", axis=0)
_sum_tanh_derivs = tensor.aggregate("1 - _1 * _1", "sum", axis=0)
_sum_products = tensor.aggregate("_1 * _2", "sum", axis=0)
_total = tensor.aggregate("_1", "sum", axis=None)


class _GruNonlinearity(UpdatableComponent):
    """What both kinds share: w_h, the statistics of tanh, self-repair, files.

    `value_sum` and `deriv_sum` (cell_dim,), float64, over `count` rows.
    """

    w_h: Array
    self_repair_threshold: float = 0.2
    self_repair_scale: float = 1.0e-05
    self_repair_total: float = 0.0
    count: float = 0.0

    def __init__(self, w_h: Array) -> None:
        self.w_h = w_h
        self.value_sum = tensor.zeros((self.cell_dim,), dtype=np.float64)
        self.deriv_sum = tensor.zeros((self.cell_dim,), dtype=np.float64)

    @property
    def cell_dim(self) -> int:
        """Number of memory cells."""
        return int(self.w_h.shape[0])

    @property
    def output_dim(self) -> int:
        return 2 * self.cell_dim

    @property
    def properties(self) -> Properties:
        return (
            Properties.SIMPLE
            | Properties.UPDATABLE
            | Properties.BACKPROP_NEEDS_INPUT
            | Properties.BACKPROP_NEEDS_OUTPUT
            | Properties.BACKPROP_ADDS
        )

    def parameters(self) -> dict[str, Array]:
        return {"w_h": self.w_h}

    def read_common_config(self, line: ConfigLine) -> None:
        """Take the options that both kinds have."""
        self.read_updatable_config(line)
        self.self_repair_threshold = line.get_float("self-repair-threshold", 0.2)
        self.self_repair_scale = line.get_float("self-repair-scale", 1.0e-05)
        if self.self_repair_threshold < 0.0 or self.self_repair_scale < 0.0:
            raise line.error("self-repair-threshold and self-repair-scale must not be negative")

    # -- files: averages instead of sums

    def read_stats(self, reader: Reader) -> None:
        """Read from <ValueAvg> to <SelfRepairScale>."""
        averages = [
            read_field(reader, token, lambda: reader.read_vector(np.float64))
            for token in ("<ValueAvg>", "<DerivAvg>")
        ]
        fits = all(len(a) == self.cell_dim for a in averages)
        require(reader, fits, f"expected statistics of {self.cell_dim} cells")
        self.self_repair_total = read_field(reader, "<SelfRepairTotal>", reader.read_double)
        self.count = read_field(reader, "<Count>", reader.read_double)
        self.value_sum, self.deriv_sum = (a * self.count for a in averages)
        self.self_repair_threshold = read_field(reader, "<SelfRepairThreshold>", reader.read_float)
        self.self_repair_scale = read_field(reader, "<SelfRepairScale>", reader.read_float)

    def write_stats(self, writer: Writer) -> None:
        """Write what `read_stats` reads."""
        for token, total in (("<ValueAvg>", self.value_sum), ("<DerivAvg>", self.deriv_sum)):
            write_field(writer, token, rounded_average(total, self.count))
        write_double_field(writer, "<SelfRepairTotal>", self.self_repair_total)
        write_double_field(writer, "<Count>", self.count)
        write_field(writer, "<SelfRepairThreshold>", float(self.self_repair_threshold))
        write_field(writer, "<SelfRepairScale>", float(self.self_repair_scale))

    def stats_info(self) -> str:
        """The part of nnet3-info's line from w_h to deriv-avg."""
        text = parameter_stats("w_h", self.w_h)
        text += f", self-repair-threshold={self.self_repair_threshold:g}"
        text += f", self-repair-scale={self.self_repair_scale:g}"
        if self.count > 0:
            proportion = self.self_repair_total / (self.count * self.cell_dim)
            text += f", count={self.count:.3g}, self-repaired-proportion={proportion:g}"
            for name, total in (("value", self.value_sum), ("deriv", self.deriv_sum)):
                text += f", {name}-avg={summarize_vector(tensor.to_host(total) / self.count)}"
        return text

    # -- running

    def backprop(
        self,
        debug_info: str,
        indexes: PrecomputedIndexes | None,
        in_value: Array | None,
        out_value: Array | None,
        out_deriv: Array,
        memo: object,
        to_update: Component | None,
        in_deriv: Array | None,
    ) -> None:
        assert in_value is not None
        assert out_value is not None
        dim = self.cell_dim
        h, c_deriv = out_value[:, :dim], out_deriv[:, dim:]
        z, previous = in_value[:, :dim], self.previous_cell(in_value)
        with tensor.scratch(h.shape, like=h) as h_deriv:
            # Nothing but tests ever gives a derivative at h itself.
            _tanh_argument_deriv(h_deriv, out_deriv[:, :dim], c_deriv, z, h)
            if in_deriv is not None:
                _add_z_deriv(in_deriv[:, :dim], c_deriv, previous, h)
                _add_product(self.previous_cell(in_deriv), c_deriv, z)
            if to_update is not None:
                assert isinstance(to_update, _GruNonlinearity)
                to_update._stats_and_self_repair(h, h_deriv)
            self.backprop_argument(in_value, h_deriv, to_update, in_deriv)

    def _stats_and_self_repair(self, h: Array, h_deriv: Array) -> None:
        """Count tanh values and derivatives; pull units with small derivatives towards 0."""
        if rand_uniform() > _REPAIR_PROBABILITY:
            return
        self.count += h.shape[0]
        _sum(self.value_sum, h, beta=1.0)
        _sum_tanh_derivs(self.deriv_sum, h, beta=1.0)
        if self.count <= 0.0:  # a difference of models
            return
        with tensor.scratch((self.cell_dim,), like=h) as repaired:
            _needs_repair(repaired, self.deriv_sum, self.self_repair_threshold * self.count)
            self.self_repair_total += _total(repaired) or 0.0
            _repair(h_deriv, h, repaired, self.self_repair_scale / _REPAIR_PROBABILITY)

    @abstractmethod
    def previous_cell(self, matrix: Array) -> Array:
        """The columns of the input (or its derivative) that are c(t-1)."""

    @abstractmethod
    def backprop_argument(
        self, in_value: Array, h_deriv: Array, to_update: Component | None, in_deriv: Array | None
    ) -> None:
        """Go on from the derivative at the argument of tanh, and update; may overwrite h_deriv."""

    # -- training

    def zero_stats(self) -> None:
        tensor.fill(self.value_sum, 0.0)
        tensor.fill(self.deriv_sum, 0.0)
        self.self_repair_total = self.count = 0.0

    def scale(self, scale: float) -> None:
        super().scale(scale)
        if scale == 0.0:
            self.zero_stats()
            return
        tensor.scale(self.value_sum, scale)
        tensor.scale(self.deriv_sum, scale)
        self.self_repair_total *= scale
        self.count *= scale

    def add(self, alpha: float, other: Component) -> None:
        super().add(alpha, other)
        assert isinstance(other, _GruNonlinearity)
        tensor.add(self.value_sum, other.value_sum, alpha=alpha)
        tensor.add(self.deriv_sum, other.deriv_sum, alpha=alpha)
        self.self_repair_total += alpha * other.self_repair_total
        self.count += alpha * other.count


@register
class GruNonlinearityComponent(_GruNonlinearity):
    """[z, r, x_h, c(t-1), s(t-1)] -> [h, c]; without projection s(t-1) is c(t-1), given once.

    `w_h` (cell_dim, recurrent_dim).
    """

    def __init__(self, w_h: Array) -> None:
        super().__init__(w_h)
        self.preconditioner_in = OnlineNaturalGradient(rank=20, update_period=4)
        self.preconditioner_out = OnlineNaturalGradient(rank=80, update_period=4)

    @property
    def recurrent_dim(self) -> int:
        """Dimension of r and s: less than cell_dim for a projected GRU."""
        return int(self.w_h.shape[1])

    @property
    def input_dim(self) -> int:
        if self.recurrent_dim == self.cell_dim:
            return 4 * self.cell_dim
        return 3 * self.cell_dim + 2 * self.recurrent_dim

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        cell_dim = get_positive(line, "cell-dim")
        recurrent_dim = line.get_int("recurrent-dim", -1)
        if recurrent_dim < 0:
            recurrent_dim = cell_dim
        if not 0 < recurrent_dim <= cell_dim:
            raise line.error(f"recurrent-dim must be in [1, {cell_dim}], found {recurrent_dim}")
        stddev = line.get_float("param-stddev", 1.0 / np.sqrt(cell_dim))
        component = cls(random_normal((cell_dim, recurrent_dim), stddev))
        component.read_common_config(line)
        component._set_preconditioners(
            line,
            line.get_int("rank-in", 20),
            line.get_int("rank-out", 80),
            line.get_int("update-period", 4),
            line.get_float("alpha", 4.0),
        )
        return component

    def _set_preconditioners(
        self, where: ConfigLine | Reader, rank_in: int, rank_out: int, period: int, alpha: float
    ) -> None:
        self.preconditioner_in, self.preconditioner_out = (
            checked_natural_gradient(OnlineNaturalGradient(rank, period, alpha=alpha), where)
            for rank in (rank_in, rank_out)
        )

    @classmethod
    def read(cls, reader: Reader) -> Self:
        component = cls(tensor.zeros((0, 0)))
        component.read_updatable_common(reader)
        shape = tuple(
            read_field(reader, token, reader.read_int32)
            for token in ("<CellDim>", "<RecurrentDim>")
        )
        component.w_h = read_field(reader, "<w_h>", reader.read_matrix)
        require(reader, component.w_h.shape == shape, f"expected <w_h> of shape {shape}")
        component.read_stats(reader)
        alpha = read_field(reader, "<Alpha>", reader.read_float)
        rank_in = read_field(reader, "<RankInOut>", reader.read_int32)
        rank_out = reader.read_int32()
        period = read_field(reader, "<UpdatePeriod>", reader.read_int32)
        component._set_preconditioners(reader, rank_in, rank_out, period, alpha)
        reader.expect_token(f"</{cls.type_name}>")
        return component

    def write(self, writer: Writer) -> None:
        self.write_updatable_common(writer)
        write_field(writer, "<CellDim>", self.cell_dim)
        write_field(writer, "<RecurrentDim>", self.recurrent_dim)
        write_field(writer, "<w_h>", self.w_h)
        self.write_stats(writer)
        write_field(writer, "<Alpha>", float(self.preconditioner_in.alpha))
        write_field(writer, "<RankInOut>", self.preconditioner_in.rank)
        writer.write_int32(self.preconditioner_out.rank)
        write_field(writer, "<UpdatePeriod>", self.preconditioner_in.update_period)
        writer.write_token(f"</{self.type_name}>")

    def info(self) -> str:
        rank_in, rank_out = self.preconditioner_in.rank, self.preconditioner_out.rank
        return (
            f"{super().info()}, cell-dim={self.cell_dim}, recurrent-dim={self.recurrent_dim}"
            f"{self.stats_info()}, alpha={self.preconditioner_in.alpha:g}, rank-in={rank_in}"
            f", rank-out={rank_out}, update-period={self.preconditioner_in.update_period}"
        )

    def previous_cell(self, matrix: Array) -> Array:
        start = 2 * self.cell_dim + self.recurrent_dim
        return matrix[:, start : start + self.cell_dim]

    def _reset_and_state(self, matrix: Array) -> tuple[Array, Array]:
        """The columns r and s(t-1)."""
        dim, recurrent = self.cell_dim, self.recurrent_dim
        return matrix[:, dim : dim + recurrent], matrix[:, matrix.shape[1] - recurrent :]

    def _argument(self, matrix: Array) -> Array:
        """The columns x_h."""
        start = self.cell_dim + self.recurrent_dim
        return matrix[:, start : start + self.cell_dim]

    def propagate(
        self, indexes: PrecomputedIndexes | None, in_value: Array, out_value: Array
    ) -> object:
        h, c = out_value[:, : self.cell_dim], out_value[:, self.cell_dim :]
        reset, state = self._reset_and_state(in_value)
        tensor.copy(h, self._argument(in_value))
        with tensor.scratch(state.shape, like=state) as gated:
            _multiply(gated, reset, state)
            tensor.prod(h, gated, self.w_h, trans_b=True, beta=1.0)
        _finish_cell(h, c, in_value[:, : self.cell_dim], self.previous_cell(in_value))
        return None

    def backprop_argument(
        self, in_value: Array, h_deriv: Array, to_update: Component | None, in_deriv: Array | None
    ) -> None:
        reset, state = self._reset_and_state(in_value)
        with tensor.scratch(state.shape, like=state) as gated:
            if in_deriv is not None:
                tensor.add(self._argument(in_deriv), h_deriv)
                tensor.prod(gated, h_deriv, self.w_h)
                reset_deriv, state_deriv = self._reset_and_state(in_deriv)
                _add_product(reset_deriv, gated, state)
                _add_product(state_deriv, gated, reset)
            if to_update is not None:
                assert isinstance(to_update, GruNonlinearityComponent)
                _multiply(gated, reset, state)
                to_update._update(gated, h_deriv)

    def _update(self, inputs: Array, derivs: Array) -> None:
        """Add the gradient, preconditioned if this is no gradient holder; overwrites both."""
        rate = self.learning_rate
        if not self.is_gradient:
            rate *= self.preconditioner_in.precondition(inputs)
            rate *= self.preconditioner_out.precondition(derivs)
        tensor.prod(self.w_h, derivs, inputs, trans_a=True, alpha=rate, beta=1.0)

    def freeze_natural_gradient(self, freeze: bool) -> None:
        self.preconditioner_in.frozen = freeze
        self.preconditioner_out.frozen = freeze


@register
class OutputGruNonlinearityComponent(_GruNonlinearity):
    """[z, x_h, c(t-1)] -> [h, c]; `w_h` (cell_dim,)."""

    def __init__(self, w_h: Array) -> None:
        super().__init__(w_h)
        self.preconditioner = OnlineNaturalGradient(rank=8, update_period=10)

    @property
    def input_dim(self) -> int:
        return 3 * self.cell_dim

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        cell_dim = get_positive(line, "cell-dim")
        mean, stddev = line.get_float("param-mean", 0.0), line.get_float("param-stddev", 1.0)
        component = cls(random_normal((cell_dim,), stddev, mean))
        component.read_common_config(line)
        component.preconditioner = checked_natural_gradient(
            OnlineNaturalGradient(
                line.get_int("rank", 8),
                line.get_int("update-period", 10),
                alpha=line.get_float("alpha", 4.0),
            ),
            line,
        )
        return component

    @classmethod
    def read(cls, reader: Reader) -> Self:
        component = cls(tensor.zeros((0,)))
        component.read_updatable_common(reader)
        cell_dim = read_field(reader, "<CellDim>", reader.read_int32)
        component.w_h = read_field(reader, "<w_h>", reader.read_vector)
        require(reader, len(component.w_h) == cell_dim, f"expected <w_h> of {cell_dim} numbers")
        component.read_stats(reader)
        alpha = read_field(reader, "<Alpha>", reader.read_float)
        rank = read_field(reader, "<Rank>", reader.read_int32)
        period = read_field(reader, "<UpdatePeriod>", reader.read_int32)
        component.preconditioner = checked_natural_gradient(
            OnlineNaturalGradient(rank, period, alpha=alpha), reader
        )
        reader.expect_token(f"</{cls.type_name}>")
        return component

    def write(self, writer: Writer) -> None:
        self.write_updatable_common(writer)
        write_field(writer, "<CellDim>", self.cell_dim)
        write_field(writer, "<w_h>", self.w_h)
        self.write_stats(writer)
        write_field(writer, "<Alpha>", float(self.preconditioner.alpha))
        write_field(writer, "<Rank>", self.preconditioner.rank)
        write_field(writer, "<UpdatePeriod>", self.preconditioner.update_period)
        writer.write_token(f"</{self.type_name}>")

    def info(self) -> str:
        options = self.preconditioner
        return (
            f"{super().info()}, cell-dim={self.cell_dim}{self.stats_info()}"
            f", alpha={options.alpha:g}, rank={options.rank}"
            f", update-period={options.update_period}"
        )

    def previous_cell(self, matrix: Array) -> Array:
        return matrix[:, 2 * self.cell_dim :]

    def _argument(self, matrix: Array) -> Array:
        """The columns x_h."""
        return matrix[:, self.cell_dim : 2 * self.cell_dim]

    def propagate(
        self, indexes: PrecomputedIndexes | None, in_value: Array, out_value: Array
    ) -> object:
        h, c = out_value[:, : self.cell_dim], out_value[:, self.cell_dim :]
        previous = self.previous_cell(in_value)
        _peephole_argument(h, self._argument(in_value), previous, self.w_h)
        _finish_cell(h, c, in_value[:, : self.cell_dim], previous)
        return None

    def backprop_argument(
        self, in_value: Array, h_deriv: Array, to_update: Component | None, in_deriv: Array | None
    ) -> None:
        if in_deriv is not None:
            tensor.add(self._argument(in_deriv), h_deriv)
            _add_product(self.previous_cell(in_deriv), h_deriv, self.w_h)
        if to_update is not None:
            assert isinstance(to_update, OutputGruNonlinearityComponent)
            to_update._update(self.previous_cell(in_value), h_deriv)

    def _update(self, previous: Array, derivs: Array) -> None:
        """Add the gradient, preconditioned if this is no gradient holder; overwrites derivs."""
        if self.is_gradient:
            _sum_products(self.w_h, derivs, previous, alpha=self.learning_rate, beta=1.0)
            return
        _multiply(derivs, derivs, previous)
        add_preconditioned_rows(self.w_h, derivs, self.learning_rate, self.preconditioner)

    def freeze_natural_gradient(self, freeze: bool) -> None:
        self.preconditioner.frozen = freeze
