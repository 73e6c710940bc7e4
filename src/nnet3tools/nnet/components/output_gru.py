"""The nonlinear part of an output-gated GRU cell.

    h(t) = tanh(x_h + w * c(t-1)),  c(t) = (1 - z) * h(t) + z * c(t-1)

Formulas, config and files: Kaldi's OutputGruNonlinearityComponent (nnet-combined-component.{h,cc}).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from nnet3tools import tensor
from nnet3tools.nnet.components.base import Array, Indexes
from nnet3tools.nnet.components.common import (
    checked_natural_gradient,
    get_positive,
    random_normal,
    read_field,
    require,
    write_field,
)
from nnet3tools.nnet.components.gru_base import GruNonlinearityBase
from nnet3tools.nnet.components.per_element import add_preconditioned_rows
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient
from nnet3tools.tensor.gru import gru_columns

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["OutputGruNonlinearityComponent"]

_multiply = tensor.element("_1 = _2 * _3")
_sum_products = tensor.aggregate("_1 * _2", "sum", axis=0)


@register
class OutputGruNonlinearityComponent(GruNonlinearityBase):
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

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """A cell: sigmoid, w * c, sum, tanh, and the interpolation (4)."""
        return 8 * rows * self.cell_dim

    def info(self) -> str:
        options = self.preconditioner
        return (
            f"{super().info()}, cell-dim={self.cell_dim}{self.stats_info()}"
            f", alpha={options.alpha:g}, rank={options.rank}"
            f", update-period={options.update_period}"
        )

    def update_weights(self, in_value: Array, argument_deriv: Array) -> None:
        previous = gru_columns(self.w_h).cell_of(in_value)
        if self.is_gradient:
            _sum_products(self.w_h, argument_deriv, previous, alpha=self.learning_rate, beta=1.0)
            return
        _multiply(argument_deriv, argument_deriv, previous)
        add_preconditioned_rows(self.w_h, argument_deriv, self.learning_rate, self.preconditioner)

    def freeze_natural_gradient(self, freeze: bool) -> None:
        self.preconditioner.frozen = freeze
