"""Natural gradient on both sides of a parameter matrix: inputs and output derivatives.

The update is W += lr * (scaled) P_out(dF/dy)^T P_in(x); see Povey et al. 2014, equation (3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nnet3tools.nnet.components.array_fields import Preconditioner, Side
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient

if TYPE_CHECKING:
    from nnet3tools.nnet.config import ConfigLine

__all__ = [
    "BOTH_ALPHAS",
    "BOTH_HISTORIES",
    "BOTH_PERIODS",
    "TwoSidedNaturalGradient",
]

BOTH_PERIODS = ("preconditioner_in.update_period", "preconditioner_out.update_period")
BOTH_HISTORIES = ("preconditioner_in.num_samples_history", "preconditioner_out.num_samples_history")
BOTH_ALPHAS = ("preconditioner_in.alpha", "preconditioner_out.alpha")


def _preconditioning(estimate: OnlineNaturalGradient, rows: int, dim: int) -> int:
    """H = X W^T and X -= H W always; J = H^T X and the new W (rank^2) once in a period."""
    rank = min(estimate.rank, max(1, dim - 1))
    product = 2 * rows * rank * dim
    return 2 * product + (product + 2 * rank * rank * dim) // max(1, estimate.update_period)


class TwoSidedNaturalGradient(UpdatableComponent):
    """An updatable component with one estimate for its inputs and one for its derivatives.

    Classes declare `rank_in`, `rank_out` and the other options with their tokens and places.
    """

    use_natural_gradient: Any = True
    preconditioner_in = Preconditioner(Side.COLUMNS, rank=20, update_period=4)
    preconditioner_out = Preconditioner(Side.ROWS, rank=80, update_period=4)

    def set_default_ranks(
        self, line: ConfigLine, input_dim: int, output_dim: int, most_in: int = 20
    ) -> None:
        """Kaldi's ranks for these dimensions, unless a config line says others (not negative)."""
        for side, most, dim in (("in", most_in, input_dim), ("out", 80, output_dim)):
            if line.get_int(f"rank-{side}", -1) < 0:
                estimate: OnlineNaturalGradient = getattr(self, f"preconditioner_{side}")
                estimate.rank = min(most, (dim + 1) // 2)

    def precondition(self, inputs: Array, derivs: Array) -> float:
        """Precondition both in place; returns the learning rate times the two scales."""
        rate = self.learning_rate * self.preconditioner_in.precondition(inputs)
        return rate * self.preconditioner_out.precondition(derivs)

    def natural_gradient_flops(self, rows: int) -> int:
        """Operations to precondition both sides of the matrix of parameters.

        There are more vectors than rows where the matrix is used several times a row.
        """
        if not self.use_natural_gradient:
            return 0
        num_out, num_in = max((p.shape for p in self.parameters().values()), key=len)
        vectors = rows * self.output_dim // num_out
        inputs = _preconditioning(self.preconditioner_in, vectors, num_in + 1)
        return inputs + _preconditioning(self.preconditioner_out, vectors, num_out)
