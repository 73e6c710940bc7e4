"""Online natural gradient: multiplies derivatives by the inverse of a running Fisher estimate.

Povey, Zhang and Khudanpur, "Parallel training of DNNs with natural gradient and parameter
averaging" (ICLR workshop 2015), appendix "Online estimation of a low-rank Fisher matrix"; the
defaults, floors and the update schedule are those of Kaldi's natural-gradient-online.{h,cc}.

The Fisher matrix of D-dimensional vectors, the rows of X_t (N x D), is approximated by

    F_t = R_t^T D_t R_t + rho_t I          R_t: R x D with orthonormal rows, D_t diagonal

and smoothed to G_t = F_t + (alpha / D) tr(F_t) I = R_t^T D_t R_t + beta_t I. By Woodbury

    beta_t X_t G_t^-1 = X_t - X_t W_t^T W_t,    W_t = E_t^1/2 R_t,    e_t = 1 / (beta_t / d_t + 1)

so only W_t (on the device), d_t and rho_t (on the host) are kept. F_{t+1} approximates
T_t = eta / N X_t^T X_t + (1 - eta) F_t by one step of the power method from R_t.
"""

from __future__ import annotations

import copy
import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nnet3tools import tensor
from nnet3tools.errors import UserError
from nnet3tools.io import log

__all__ = ["OnlineNaturalGradient"]

Array = Any
Vector = NDArray[np.float64]

_EPSILON = 1.0e-10
"""Absolute floor of rho and d: keeps F invertible where all derivatives are zero."""
_DELTA = 5.0e-4
"""Floor of rho and d relative to the largest eigenvalue: keeps roundoff in check."""
_INITIAL_UPDATES = 10
"""F is updated on every one of the first calls; only later does `update_period` count."""
_MAX_CONDITION = 1.0e6
"""Above this condition number of C_t the rows of R_{t+1} are checked for orthogonality."""
_ORTHOGONALITY = 1.0e-3
"""Largest tolerated element of R R^T - I."""

_add_scaled_rows = tensor.element("_1 += _2 * _3")


class OnlineNaturalGradient:
    """Running Fisher estimate for the rows of one matrix, and the preconditioning with it.

    The state (`w`, `d`, `rho`) is not part of model files; only the options are. `num_calls`
    counts `precondition` calls; 0 means that there is no estimate yet.
    """

    HOST_ARRAYS = ("d",)
    """What stays on the host when a network moves to a device."""

    def __init__(
        self,
        rank: int = 40,
        update_period: int = 1,
        num_samples_history: float = 2000.0,
        alpha: float = 4.0,
        num_minibatches_history: float = 0.0,
    ) -> None:
        self.rank = rank
        self.update_period = update_period
        self.num_samples_history = num_samples_history
        self.num_minibatches_history = num_minibatches_history
        self.alpha = alpha
        self.frozen = False
        self.num_calls = 0
        self.w: Array | None = None
        self.d: Vector = np.empty(0)
        self.rho = 0.0

    def problem(self) -> str | None:
        """What is wrong with the options, in words, or None."""
        if self.rank <= 0:
            return f"natural-gradient rank must be positive, found {self.rank}"
        if self.update_period <= 0:
            return f"update-period must be positive, found {self.update_period}"
        if not 0.0 < self.num_samples_history < 1.0e6:
            return f"num-samples-history must be in (0, 1e6), found {self.num_samples_history:g}"
        if self.num_minibatches_history != 0.0 and not self.num_minibatches_history > 1.0:
            return (
                f"num-minibatches-history must be above 1, found {self.num_minibatches_history:g}"
            )
        if not self.alpha >= 0.0:
            return f"alpha must not be negative, found {self.alpha:g}"
        return None

    def copy(self) -> Self:
        """An independent copy, state included."""
        return copy.deepcopy(self)

    def precondition(self, x: Array) -> float:
        """Replace x (N x D) by x times the smoothed inverse Fisher matrix, up to a scale.

        Returns the factor that gives the result the Frobenius norm that x had; the caller folds
        it into the learning rate. Also updates the estimate when the schedule says so.
        """
        if x.shape[1] == 1:  # a scalar space has nothing to precondition
            return 1.0
        if self.num_calls == 0:
            self._initialize(x)
        product = float(tensor.dot(x, x))
        self._step(x, product, updating=self._updating())
        self.num_calls += 1
        if product <= 0.0:
            return 1.0
        result = float(tensor.dot(x, x))
        return math.sqrt(product / result) if result != 0.0 else 1.0

    # -- when

    def _updating(self) -> bool:
        later = self.num_calls - _INITIAL_UPDATES
        return not self.frozen and (later <= 0 or later % self.update_period == 0)

    def _eta(self, num_rows: int) -> float:
        """How much of the new scatter goes into the estimate, 0 < eta <= 0.9."""
        if self.num_minibatches_history > 0.0:
            return 1.0 / self.num_minibatches_history
        return min(0.9, 1.0 - math.exp(-num_rows / self.num_samples_history))

    # -- the start

    def _initialize(self, x: Array) -> None:
        """Estimate from the first minibatch: a few power-method steps from a fixed start."""
        num_rows, dim = x.shape
        if self.rank >= dim:
            log.warning(
                f"rank {self.rank} of online natural gradient is >= dim {dim}, setting it to "
                f"{dim - 1} (but this is probably still too high)"
            )
            self.rank = dim - 1
        self.rho = _EPSILON
        self.d = np.full(self.rank, _EPSILON)
        start = math.sqrt(1.0 / (2.0 + (dim + self.rank) * self.alpha / dim))
        w = start * _special_orthonormal(self.rank, dim)
        self.w = tensor.asarray(w.astype(np.float32), like=x)
        # With no more rows than the rank one step already finds their row space.
        with tensor.scratch(x.shape, like=x) as work:
            for _ in range(1 if num_rows <= self.rank else 3):
                tensor.copy(work, x)
                self._step(work, float(tensor.dot(x, x)), updating=True)

    # -- one step

    def _step(self, x: Array, trace: float, updating: bool) -> None:
        """Replace x by x - x W^T W; if `updating`, also the estimate. `trace` is tr(x x^T)."""
        w, rank = self.w, self.rank
        assert w is not None
        with tensor.scratch((x.shape[0], rank), like=x) as h:
            tensor.prod(h, x, w, trans_b=True)  # H = X W^T
            if not updating:
                tensor.prod(x, h, w, alpha=-1.0, beta=1.0)
                return
            with tensor.scratch(w.shape, like=w) as j:
                tensor.prod(j, h, x, trans_a=True)  # J = H^T X
                k_and_l = self._small_products(x, h, j)
                tensor.prod(x, h, w, alpha=-1.0, beta=1.0)
                self._update(j, *k_and_l, trace, x.shape[0])

    def _small_products(self, x: Array, h: Array, j: Array) -> tuple[Vector, Vector]:
        """K = J J^T and L = H^T H = W J^T on the host, by the cheaper way."""
        with tensor.scratch((2, self.rank, self.rank), like=x) as small:
            tensor.prod(small[0], j, j, trans_b=True)
            if x.shape[0] > x.shape[1]:
                tensor.prod(small[1], self.w, j, trans_b=True)
            else:
                tensor.prod(small[1], h, h, trans_a=True)
            both = tensor.to_host(small).astype(np.float64)
        both = 0.5 * (both + both.transpose(0, 2, 1))
        if not np.isfinite(both).all():
            raise UserError(
                "natural gradient met infinity or NaN in the derivatives or activations: the "
                "training has diverged (lower the learning rate or max-change) or the data is bad"
            )
        return both[0], both[1]

    def _update(self, j: Array, k: Vector, l: Vector, trace: float, num_rows: int) -> None:  # noqa: E741
        """The estimate after a minibatch whose products are J, K, L; J is overwritten by B."""
        assert self.w is not None
        rank, dim = self.w.shape
        eta = self._eta(num_rows)
        eta_n, keep = eta / num_rows, 1.0 - eta
        inv_sqrt_e = 1.0 / np.sqrt(self._e(self.d, self.rho, dim))
        d_rho = self.d + self.rho

        # Z = Y Y^T with Y = R T = eta/N E^-1/2 J + (1 - eta) (D + rho I) R, by the small products
        scaled_l = eta_n * keep * (inv_sqrt_e[:, None] * l * inv_sqrt_e)
        z = eta_n**2 * (inv_sqrt_e[:, None] * k * inv_sqrt_e)
        z += scaled_l * d_rho + d_rho[:, None] * scaled_l
        z[np.diag_indices(rank)] += (keep * d_rho) ** 2
        c, u = np.linalg.eigh(z)
        order = np.argsort(-np.abs(c), kind="stable")
        c, u = c[order], u[:, order]
        floor = (self.rho * keep) ** 2
        doubtful = bool(c[0] > _MAX_CONDITION * c[-1] or (c < floor).any())
        sqrt_c = np.sqrt(np.maximum(c, floor))

        # tr(F_{t+1}) = tr(T_t) fixes rho; D_{t+1} = C^1/2 - rho_{t+1} I
        trace_t = eta_n * trace + keep * (dim * self.rho + self.d.sum())
        rho = (trace_t - sqrt_c.sum()) / (dim - rank)
        smallest = max(_EPSILON, _DELTA * float(sqrt_c.max()))
        d = np.maximum(sqrt_c - rho, smallest)
        rho = max(rho, smallest)
        e = self._e(d, rho, dim)

        # W_{t+1} = A B, B = J + (1-eta)/(eta/N) (D+rho) W, A = eta/N E'^1/2 C^-1/2 U^T E^-1/2
        coefficients = ((keep / eta_n) * d_rho)[:, None]
        _add_scaled_rows(j, self._device(coefficients), self.w)
        a = (eta_n * np.sqrt(e) / sqrt_c)[:, None] * u.T * inv_sqrt_e
        tensor.prod(self.w, self._device(a), j)
        if doubtful:
            self._reorthogonalize(np.sqrt(e), j)
        self.d, self.rho = d, rho

    def _e(self, d: Vector, rho: float, dim: int) -> Vector:
        """Diagonal of E, from beta = rho (1 + alpha) + alpha / D tr(D)."""
        beta = rho * (1.0 + self.alpha) + self.alpha * d.sum() / dim
        return 1.0 / (beta / d + 1.0)

    def _device(self, host: Vector) -> Array:
        return tensor.asarray(host.astype(np.float32), like=self.w)

    def _reorthogonalize(self, sqrt_e: Vector, work: Array) -> None:
        """Restore R R^T = I where roundoff broke it, with R = E^-1/2 W; `work` is R x D scratch.

        R <- C^-1 R with O = R R^T = C C^T keeps the leading (larger) directions.
        """
        w, rank = self.w, len(sqrt_e)
        with tensor.scratch((rank, rank), like=w) as small:
            tensor.prod(small, w, w, trans_b=True)
            gram = tensor.to_host(small).astype(np.float64) / np.outer(sqrt_e, sqrt_e)
        if np.abs(gram - np.eye(rank)).max() <= _ORTHOGONALITY:
            return
        try:
            inverse = np.linalg.inv(np.linalg.cholesky(gram))
        except np.linalg.LinAlgError:
            inverse = None
        if inverse is None or not inverse.max() < 100.0:
            log.warning("Cholesky out of expected range, reorthogonalizing by QR")
            q, r = np.linalg.qr(tensor.to_host(w).T.astype(np.float64))
            signs = np.where(np.diag(r) < 0.0, -1.0, 1.0)
            tensor.copy(w, self._device((q * (signs * sqrt_e)).T))
            return
        tensor.copy(work, w)
        tensor.prod(w, self._device(sqrt_e[:, None] * np.tril(inverse) / sqrt_e), work)


def _special_orthonormal(num_rows: int, num_cols: int) -> Vector:
    """Orthonormal rows without a zero row or column: row r has its entries at r, r + num_rows...

    The first entry of a row is 1.1 times the others, so that no sum of rows is constant: the
    derivative in the direction of all ones is exactly zero in some networks.
    """
    column = np.arange(num_cols)
    rows = np.zeros((num_rows, num_cols))
    rows[column % num_rows, column] = np.where(column < num_rows, 1.1, 1.0)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
