"""What GRU nonlinearities share: tanh statistics, self-repair, files, backprop of the cell.

    c(t) = (1 - z) * h(t) + z * c(t-1),  h(t) = tanh(argument)

The argument is the concrete component's. Formulas and file fields: Kaldi's
nnet-combined-component.{h,cc}.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

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
    rand_uniform,
    read_field,
    require,
    rounded_average,
    write_double_field,
    write_field,
)
from nnet3tools.nnet.components.summary import parameter_stats, summarize_vector

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["GruNonlinearityBase", "add_product", "finish_cell"]

_REPAIR_PROBABILITY = 0.5
"""Statistics and self-repair run on about this part of the minibatches."""

add_product = tensor.element("_1 += _2 * _3")
finish_cell = tensor.element("_1 = tanh(_1); _2 = (1 - _3) * _1 + _3 * _4")
"""(_1: the argument of tanh, which becomes h, _2: c) of (_3 z, _4 the c before)."""

# (_1: derivative at the argument of tanh) of (_2 at h, _3 at c, _4 z, _5 h)
_tanh_argument_deriv = tensor.element("_1 = (_2 + _3 * (1 - _4)) * (1 - _5 * _5)")
_add_z_deriv = tensor.element("_1 += _2 * (_3 - _4)")
_repair = tensor.element("_1 -= _2 * _3 * _4")
_needs_repair = tensor.element("_1 = where(_2 < _3, 1, 0)")
_sum = tensor.aggregate("_1", "sum", axis=0)
_sum_tanh_derivs = tensor.aggregate("1 - _1 * _1", "sum", axis=0)
_total = tensor.aggregate("_1", "sum", axis=None)


class GruNonlinearityBase(UpdatableComponent):
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
                add_product(self.previous_cell(in_deriv), c_deriv, z)
            if to_update is not None:
                assert isinstance(to_update, GruNonlinearityBase)
                to_update.stats_and_self_repair(h, h_deriv)
            self.backprop_argument(in_value, h_deriv, to_update, in_deriv)

    def stats_and_self_repair(self, h: Array, h_deriv: Array) -> None:
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
        assert isinstance(other, GruNonlinearityBase)
        tensor.add(self.value_sum, other.value_sum, alpha=alpha)
        tensor.add(self.deriv_sum, other.deriv_sum, alpha=alpha)
        self.self_repair_total += alpha * other.self_repair_total
        self.count += alpha * other.count
