"""Natural gradient on both sides of a parameter matrix: inputs and output derivatives.

The update is W += lr * scales * P_out(dF/dy)^T P_in(x); see Povey et al. 2014, equation (3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnet3tools import tensor
from nnet3tools.nnet.components.array_fields import Preconditioner, Side
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.components.fields import Float, Int
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.nnet.config import ConfigLine
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient
from nnet3tools.nnet.parts import in_columns
from nnet3tools.tensor.registry import on_host


def both_paths(option: str) -> tuple[str, str]:
    """For a Field's `of=`: the attribute paths of `option` in both natural-gradient estimates."""
    return f"preconditioner_in.{option}", f"preconditioner_out.{option}"


NUM_SAMPLES_HISTORY = Float(
    "<NumSamplesHistory>", "num-samples-history", 2000.0, of=both_paths("num_samples_history")
)
UPDATE_PERIOD = Int("<UpdatePeriod>", "update-period", 4, of=both_paths("update_period"))
ALPHA = Float("<Alpha>", "alpha", 4.0, of=both_paths("alpha"))
"""Fields with these names, which classes declare at their position in their files."""


WORTH = 1 << 23
"""Multiplications (80 us) that factors must save, to pay for a dozen more calls."""


def _preconditioning(estimate: OnlineNaturalGradient, rows: int, dim: int) -> int:
    """Number of operations to precondition a matrix (rows, dim) and update `estimate`."""
    rank = min(estimate.rank, max(1, dim - 1))
    product = 2 * rows * rank * dim
    return 2 * product + (product + 2 * rank * rank * dim) // max(1, estimate.update_period)


def set_columns(inputs: Array, parts: Sequence[Array]) -> None:
    """Copy the parts side by side into `inputs`, and set its last column to 1."""
    width = 0
    for part, columns in in_columns(parts, inputs):
        tensor.copy(columns, part)
        width += part.shape[1]
    if width < inputs.shape[1]:
        tensor.fill(inputs[:, width:], 1.0)


def _targets(linear: Array, bias: Array | None) -> list[tuple[Array, slice]]:
    """(matrix, slice): linear, its input columns; with a bias, (D, 1) bias, the column of ones."""
    dim = linear.shape[1]
    found = [(linear, slice(dim))]
    return found if bias is None else [*found, (bias.reshape(-1, 1), slice(dim, None))]


def _add_products(
    linear: Array, bias: Array | None, rate: Any, pairs: Sequence[tuple[Array, Array]]
) -> None:
    """Add rate * sum of left^T right over `pairs` to `linear`, the sum's last column to `bias`."""
    shape = linear.shape[0], pairs[0][1].shape[1]
    if bias is None or not on_host(linear) or pairs[0][0].shape[0] < shape[1]:
        for target, columns in _targets(linear, bias):
            for left, right in pairs:
                tensor.prod(target, left, right[:, columns], trans_a=True, alpha=rate, beta=1.0)
        return
    # A product with one column takes BLAS (which copies `left`) as long as one with twenty.
    with tensor.scratch(shape, like=linear) as gradient:
        for i, (left, right) in enumerate(pairs):
            tensor.prod(gradient, left, right, trans_a=True, beta=float(i > 0))
        for target, columns in _targets(linear, bias):
            tensor.add(target, gradient[:, columns], alpha=rate)


class TwoSidedNaturalGradient(UpdatableComponent):
    """An updatable component with natural-gradient estimates for inputs and output derivatives.

    Subclasses declare `rank_in`, `rank_out` and the other options with their tokens.
    """

    preconditioner_in = Preconditioner(Side.COLUMNS, rank=20, update_period=4)
    preconditioner_out = Preconditioner(Side.ROWS, rank=80, update_period=4)

    def set_default_ranks(
        self, line: ConfigLine, input_dim: int, output_dim: int, most_in: int = 20
    ) -> None:
        """Set Kaldi's default ranks (inputs: at most `most_in`) unless the line gives ranks."""
        for side, most, dim in (("in", most_in, input_dim), ("out", 80, output_dim)):
            if line.get_int(f"rank-{side}", -1) < 0:
                estimate: OnlineNaturalGradient = getattr(self, f"preconditioner_{side}")
                estimate.rank = min(most, (dim + 1) // 2)

    def precondition(self, inputs: Array, derivs: Array) -> float:
        """Precondition both matrices in place; returns the learning rate to use with them."""
        rate = self.rate * self.preconditioner_in.precondition(inputs)
        return rate * self.preconditioner_out.precondition(derivs)

    def update_affine(
        self, linear: Array, bias: Array | None, parts: Sequence[Array], derivs: Array
    ) -> None:
        """Update an affine map with natural gradient, or just add its gradient if `is_gradient`.

        `derivs` (N, D) are derivatives at the output. `parts` are inputs of N rows each, one for
        each range of columns of `linear`. `bias` (D,) is None if there is none; it is
        preconditioned as the weight of one more input, which is always 1.
        """
        if self.is_gradient:
            self.add_affine_gradient(linear, bias, parts, derivs)
            return
        if self._update_factored(linear, bias, parts, derivs):
            return
        rows, dim = derivs.shape[0], linear.shape[1]
        num_in = dim + (bias is not None)
        with (
            tensor.padded_scratch((rows, num_in), like=parts[0]) as inputs,
            tensor.padded_scratch(derivs.shape, like=derivs) as deriv,
        ):
            set_columns(inputs, parts)
            tensor.copy(deriv, derivs)
            rate = self.precondition(inputs, deriv)
            _add_products(linear, bias, rate, [(deriv, inputs)])

    # factored form: one side stays unchanged

    def _update_factored(
        self, linear: Array, bias: Array | None, parts: Sequence[Array], derivs: Array
    ) -> bool:
        """Update `linear` and `bias` with natural gradient, without a copy of one side, if faster.

        The sides are the inputs (`parts`, side by side) and `derivs`. One is used as it is, and a
        low-rank correction is added. Returns False, without an update, if this is not faster.
        """
        if not on_host(derivs):  # on a GPU, multiplications do not dominate the time
            return False
        num_in = linear.shape[1] + (bias is not None)
        side = self._factored_side(derivs.shape[0], num_in, derivs.shape[1])
        if side is Side.COLUMNS:
            self._update_by_factors_of_inputs(linear, bias, parts, derivs)
        elif side is Side.ROWS:
            self._update_by_factors_of_derivs(linear, bias, parts, derivs)
        return side is not None

    def _factored_side(self, num_rows: int, num_in: int, num_out: int) -> Side | None:
        """The matrix to precondition by a low-rank correction of the product; None if that is slow.

        It is COLUMNS, the inputs (num_rows, num_in), or ROWS, the derivatives (num_rows, num_out):
        the one that saves more multiplications, if these are more than WORTH.
        """
        ranks = {Side.COLUMNS: self.preconditioner_in.rank, Side.ROWS: self.preconditioner_out.rank}
        dims = {Side.COLUMNS: (num_in, num_out), Side.ROWS: (num_out, num_in)}
        saved = {
            side: ranks[side] * (num_rows * (own - other) - own * other)
            for side, (own, other) in dims.items()
        }
        best = max(saved, key=saved.__getitem__)
        return best if saved[best] > WORTH and ranks[best] < dims[best][0] else None

    def _update_by_factors_of_inputs(
        self, linear: Array, bias: Array | None, parts: Sequence[Array], derivs: Array
    ) -> None:
        num_rows, rank = derivs.shape[0], self.preconditioner_in.rank
        with (
            tensor.scratch(derivs.shape, like=derivs) as deriv,
            tensor.scratch((num_rows, 1), like=derivs) as ones,
            tensor.scratch((derivs.shape[1], rank), like=derivs) as narrow,
        ):
            tensor.copy(deriv, derivs)
            tensor.fill(ones, 1.0)
            inputs = parts if bias is None else [*parts, ones]
            with self.preconditioner_in.factored(inputs) as found:
                rate = self.rate * found.scale
                rate = rate * self.preconditioner_out.precondition(deriv)
                tensor.prod(narrow, deriv, found.h, trans_a=True, alpha=-1.0)
                self.add_affine_gradient(linear, bias, parts, deriv, rate)
                for target, columns in _targets(linear, bias):
                    tensor.prod(target, narrow, found.w[:, columns], alpha=rate, beta=1.0)

    def _update_by_factors_of_derivs(
        self, linear: Array, bias: Array | None, parts: Sequence[Array], derivs: Array
    ) -> None:
        num_rows, rank = derivs.shape[0], self.preconditioner_out.rank
        num_in = linear.shape[1] + (bias is not None)
        with (
            tensor.scratch((num_rows, num_in), like=derivs) as inputs,
            tensor.scratch((rank, num_in), like=derivs) as narrow,
        ):
            set_columns(inputs, parts)
            rate = self.rate * self.preconditioner_in.precondition(inputs)
            with self.preconditioner_out.factored([derivs]) as found:
                rate = rate * found.scale
                tensor.prod(narrow, found.h, inputs, trans_a=True, alpha=-1.0)
                _add_products(linear, bias, rate, [(derivs, inputs), (found.w, narrow)])

    def natural_gradient_flops(self, rows: int) -> int:
        """Number of operations to precondition both sides of the parameter matrix.

        A convolution uses the matrix several times per row, and preconditions as many vectors.
        """
        if not self.use_natural_gradient:
            return 0
        num_out, num_in = max((p.shape for p in self.parameters().values()), key=len)
        vectors = rows * self.output_dim // num_out
        inputs = _preconditioning(self.preconditioner_in, vectors, num_in + 1)
        return inputs + _preconditioning(self.preconditioner_out, vectors, num_out)
