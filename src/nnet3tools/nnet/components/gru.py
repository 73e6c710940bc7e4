"""The nonlinear part of a GRU cell.

    h(t) = tanh(x_h + W (r * s(t-1))),  c(t) = (1 - z) * h(t) + z * c(t-1)

Formulas, config and files: Kaldi's GruNonlinearityComponent (nnet-combined-component.{h,cc}).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

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
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.two_sided import two_sided_flops
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient
from nnet3tools.tensor.gru import gru_columns

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["GruNonlinearityComponent"]

_multiply = tensor.element("_1 = _2 * _3")


@register
class GruNonlinearityComponent(GruNonlinearityBase):
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

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """The product with w_h; a cell: two sigmoids, r * s, sum, tanh, h's interpolation (4)."""
        return 2 * rows * int(self.w_h.size) + 9 * rows * self.cell_dim

    def natural_gradient_flops(self, rows: int) -> int:
        return two_sided_flops(self, self.w_h, rows)

    def info(self) -> str:
        rank_in, rank_out = self.preconditioner_in.rank, self.preconditioner_out.rank
        return (
            f"{super().info()}, cell-dim={self.cell_dim}, recurrent-dim={self.recurrent_dim}"
            f"{self.stats_info()}, alpha={self.preconditioner_in.alpha:g}, rank-in={rank_in}"
            f", rank-out={rank_out}, update-period={self.preconditioner_in.update_period}"
        )

    def update_weights(self, in_value: Array, argument_deriv: Array) -> None:
        columns, rate = gru_columns(self.w_h), self.learning_rate
        with tensor.scratch((len(in_value), self.recurrent_dim), like=in_value) as gated:
            _multiply(gated, columns.reset_of(in_value), columns.state_of(in_value))
            if not self.is_gradient:
                rate *= self.preconditioner_in.precondition(gated)
                rate *= self.preconditioner_out.precondition(argument_deriv)
            tensor.prod(self.w_h, argument_deriv, gated, trans_a=True, alpha=rate, beta=1.0)

    def freeze_natural_gradient(self, freeze: bool) -> None:
        self.preconditioner_in.frozen = freeze
        self.preconditioner_out.frozen = freeze
