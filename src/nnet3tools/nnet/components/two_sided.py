"""Natural gradient on both sides of a matrix of parameters, as affine-like components have it.

The update is W += lr * (scaled) P_out(dF/dy)^T P_in(x); see Povey et al. 2014, equation (3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from nnet3tools.nnet.components.base import Array, UpdatableComponent
from nnet3tools.nnet.components.common import checked_natural_gradient, write_field
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["TwoSidedNaturalGradient", "two_sided_flops"]


class _TwoSided(Protocol):
    preconditioner_in: OnlineNaturalGradient
    preconditioner_out: OnlineNaturalGradient

    @property
    def output_dim(self) -> int: ...


def two_sided_flops(component: _TwoSided, matrix: Array, rows: int) -> int:
    """Operations to precondition both sides of a matrix of parameters.

    There are more vectors than rows where the matrix is used several times a row.
    """
    num_out, num_in = matrix.shape
    vectors = rows * component.output_dim // num_out
    first, second = component.preconditioner_in, component.preconditioner_out
    return _preconditioning(first, vectors, num_in + 1) + _preconditioning(second, vectors, num_out)


def _preconditioning(estimate: OnlineNaturalGradient, rows: int, dim: int) -> int:
    """H = X W^T and X -= H W always; J = H^T X and the new W (rank^2) once in a period."""
    rank = min(estimate.rank, max(1, dim - 1))
    product = 2 * rows * rank * dim
    return 2 * product + (product + 2 * rank * rank * dim) // max(1, estimate.update_period)


class TwoSidedNaturalGradient(UpdatableComponent):
    """A component with a preconditioner for its inputs and one for its output derivatives.

    Their options are the same but for the rank.
    """

    preconditioner_in: OnlineNaturalGradient
    preconditioner_out: OnlineNaturalGradient

    def preconditioners_from_config(
        self, line: ConfigLine, input_dim: int, output_dim: int
    ) -> None:
        """Take rank-in, rank-out (negative: Kaldi's defaults) and the shared options of a line."""
        rank_in, rank_out = line.get_int("rank-in", -1), line.get_int("rank-out", -1)
        if rank_in < 0:
            rank_in = min(20, (input_dim + 1) // 2)
        if rank_out < 0:
            rank_out = min(80, (output_dim + 1) // 2)
        self.set_preconditioners(
            line,
            rank_in,
            rank_out,
            line.get_int("update-period", 4),
            line.get_float("num-samples-history", 2000.0),
            line.get_float("alpha", 4.0),
        )

    def set_preconditioners(
        self,
        where: ConfigLine | Reader,
        rank_in: int,
        rank_out: int,
        update_period: int,
        num_samples_history: float,
        alpha: float,
    ) -> None:
        """Make both preconditioners; options that cannot be are the error of a line or stream."""
        self.preconditioner_in, self.preconditioner_out = (
            checked_natural_gradient(
                OnlineNaturalGradient(rank, update_period, num_samples_history, alpha), where
            )
            for rank in (rank_in, rank_out)
        )

    def precondition(self, inputs: Array, derivs: Array) -> float:
        """Precondition both in place; returns the learning rate times the two scales."""
        rate = self.learning_rate * self.preconditioner_in.precondition(inputs)
        return rate * self.preconditioner_out.precondition(derivs)

    def freeze_natural_gradient(self, freeze: bool) -> None:
        """Stop or resume updating both estimates."""
        self.preconditioner_in.frozen = freeze
        self.preconditioner_out.frozen = freeze

    def natural_gradient_info(self) -> str:
        """The natural-gradient part of nnet3-info's line."""
        options = self.preconditioner_in
        return (
            f", rank-in={options.rank}, rank-out={self.preconditioner_out.rank}"
            f", num-samples-history={options.num_samples_history:g}"
            f", update-period={options.update_period}, alpha={options.alpha:g}"
        )

    def write_field_of_preconditioner(self, writer: Writer, token: str) -> None:
        """Write <UpdatePeriod>, <NumSamplesHistory> or <Alpha>."""
        options = self.preconditioner_in
        values = {
            "<UpdatePeriod>": options.update_period,
            "<NumSamplesHistory>": float(options.num_samples_history),
            "<Alpha>": float(options.alpha),
        }
        write_field(writer, token, values[token])
