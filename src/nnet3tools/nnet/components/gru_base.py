"""What GRU nonlinearities share: the cell, tanh statistics, self-repair, files.

The shape of the weights `w_h` says which kind of cell it is: see nnet3tools.tensor.gru. File
fields: Kaldi's nnet-combined-component.{h,cc}.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

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
    rand_uniform,
    read_field,
    require,
    rounded_average,
    summed,
    write_double_field,
    write_field,
)
from nnet3tools.nnet.components.summary import parameter_stats, summarize_vector
from nnet3tools.nnet.derivative_scale import scale_as_derivative
from nnet3tools.tensor import host
from nnet3tools.tensor.counter import Counter

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["GruNonlinearityBase"]

_REPAIR_PROBABILITY = 0.5
"""Statistics and self-repair run on about this part of the minibatches."""

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
    self_repair_total = Counter()
    count = Counter()

    def __init__(self, w_h: Array) -> None:
        self.w_h = w_h
        self.self_repair_total = self.count = 0.0
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

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        tensor.gru_nonlinearity(out_value, in_value, self.w_h)

    def backprop(self, args: BackpropArgs) -> None:
        assert args.in_value is not None
        assert args.out_value is not None
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
        """Count tanh values and derivatives; set the pull of units with small ones towards 0.

        On about half of the minibatches; False on the others, which have no such pull.
        """
        if host.decide(lambda: rand_uniform() > _REPAIR_PROBABILITY):
            return False
        self.count += h.shape[0]
        _sum(self.value_sum, h, beta=1.0)
        _sum_tanh_derivs(self.deriv_sum, h, beta=1.0)
        if host.decide(lambda: self.count <= 0.0):  # a difference of models
            return False
        _needs_repair(repair, self.deriv_sum, self.self_repair_threshold * self.count)
        self.self_repair_total += summed(_total(repair))
        tensor.scale(repair, self.self_repair_scale / _REPAIR_PROBABILITY)
        scale_as_derivative(repair)
        return True

    @abstractmethod
    def update_weights(self, in_value: Array, argument_deriv: Array) -> None:
        """Add to w_h what the derivatives at tanh's argument say; may overwrite these.

        Preconditioned if this is no gradient holder.
        """

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
        if other.self_repair_total != 0.0:
            self.self_repair_total += alpha * other.self_repair_total
        if other.count != 0.0:
            self.count += alpha * other.count
