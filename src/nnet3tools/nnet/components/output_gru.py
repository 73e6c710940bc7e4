"""The nonlinear part of an output-gated GRU cell.

    h(t) = tanh(x_h + w * c(t-1)),  c(t) = (1 - z) * h(t) + z * c(t-1)

Formulas, config and files: Kaldi's OutputGruNonlinearityComponent (nnet-combined-component.{h,cc}).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from nnet3tools import tensor
from nnet3tools.nnet.components.base import (
    Array,
    Component,
    PrecomputedIndexes,
)
from nnet3tools.nnet.components.common import (
    checked_natural_gradient,
    get_positive,
    random_normal,
    read_field,
    require,
    write_field,
)
from nnet3tools.nnet.components.gru_base import GruNonlinearityBase, add_product, finish_cell
from nnet3tools.nnet.components.per_element import add_preconditioned_rows
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["OutputGruNonlinearityComponent"]

_multiply = tensor.element("_1 = _2 * _3")
_argument = tensor.element("_1 = _2 + _3 * _4")
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
        _argument(h, self._argument(in_value), previous, self.w_h)
        finish_cell(h, c, in_value[:, : self.cell_dim], previous)
        return None

    def backprop_argument(
        self, in_value: Array, h_deriv: Array, to_update: Component | None, in_deriv: Array | None
    ) -> None:
        if in_deriv is not None:
            tensor.add(self._argument(in_deriv), h_deriv)
            add_product(self.previous_cell(in_deriv), h_deriv, self.w_h)
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
