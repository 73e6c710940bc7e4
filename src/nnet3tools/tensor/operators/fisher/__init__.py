"""The small dense part of online natural gradient: eigenvalues, floors and the new estimate.

nnet/natural_gradient.py has the paper and the notation: F = R^T D R + rho I estimates the Fisher
matrix of D-dimensional rows, and W = E^1/2 R is stored instead of R. These operators compute the
R x R matrices and the vectors of R elements, in float64. On a GPU one block of threads works on
each estimate, so the host does not wait for the device (fisher_step.cuh states the formulas again,
as there is no LAPACK). The products of all estimates are one kernel, and so are all updates.

`numbers` (3,) float64 holds rho at RHO; at DOUBTFUL whether the rows of R may have lost their
orthogonality; at DIVERGED the number of minibatches whose products had infinity or NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from nnet3tools.errors import DivergedError
from nnet3tools.io import log
from nnet3tools.tensor.arrays import Array, scratch
from nnet3tools.tensor.basics import copy, prod
from nnet3tools.tensor.call import Call, operator_of_formulas
from nnet3tools.tensor.element import element
from nnet3tools.tensor.registry import operator

RHO, DOUBTFUL, DIVERGED = 0, 1, 2

EPSILON = 1.0e-10
"""Absolute floor of rho and d: keeps F invertible where all derivatives are zero."""
DELTA = 5.0e-4
"""Floor of rho and d relative to the largest eigenvalue: keeps roundoff in check."""
MAX_CONDITION = 1.0e6
"""Above this condition number of C_t the rows of R_{t+1} are checked for orthogonality."""
ORTHOGONALITY = 1.0e-3
"""Largest tolerated element of R R^T - I."""

_ratio = element("_1 = where(_2 > 0 and _3 != 0, sqrt(_2 / where(_3 != 0, _3, 1)), 1)")


_add_scaled_rows = element("_1 += _2 * _3")


def norm_ratio(before: float, after: float) -> float:
    """The ratio of two norms, given as squares (1 if either is 0); a Number if they are Numbers."""
    if isinstance(before, float):
        return math.sqrt(before / after) if before > 0.0 and after != 0.0 else 1.0
    return before.mapped(_ratio, after, function=norm_ratio)


_MUCH_LEFT = 0.02
"""Part of a squared norm below which a difference has fewer than four digits."""


@operator(writes=())
def residual_norm(h: Array, w: Array, parts: Sequence[Array], before: float) -> float:
    """The squared norm of X - H W, for X with the columns of all `parts` and H = X W^T.

    `before` is the squared norm of X. The result is before - 2 |H|^2 + tr(H^T H W W^T),
    computed from small products, unless roundoff has cost too many digits.
    """
    gram = (h.T @ h).astype(np.float64)
    after = before + float((gram * (w @ w.T)).sum()) - 2.0 * float(np.trace(gram))
    return after if after > _MUCH_LEFT * before else _by_rows(h, w, parts)


def _by_rows(h: Array, w: Array, parts: Sequence[Array], rows: int = 256) -> float:
    """The squared norm of X - H W, in blocks of `rows` rows; X has the columns of all `parts`."""
    total, begin = 0.0, 0
    for part in parts:
        end = begin + part.shape[1]
        for i in range(0, len(h), rows):
            left = part[i : i + rows] - h[i : i + rows] @ w[:, begin:end]
            total += float(np.sum(np.square(left), dtype=np.float64))
        begin = end
    return total


def diagonal_e(d: np.ndarray, rho: float, alpha: float, dim: int) -> np.ndarray:
    """The diagonal of natural gradient's matrix E, (R,), from D (R,), rho and alpha.

    It is 1 / (beta / d + 1), with beta = rho (1 + alpha) + alpha / dim * sum of d; rows are (dim,).
    """
    beta = rho * (1.0 + alpha) + alpha * d.sum() / dim
    return 1.0 / (beta / d + 1.0)


@operator(writes=("products",))
def fisher_products(products: Sequence[Array], j: Sequence[Array], w: Sequence[Array]) -> None:
    """For each estimate i, set products[i] (2, R, R) to J J^T, W J^T; J = j[i], W = w[i] (R, D)."""
    for (k, l), one, other in zip(products, j, w, strict=True):  # noqa: E741
        prod(k, one, one, trans_b=True)
        prod(l, other, one, trans_b=True)


@operator_of_formulas(writes=("w", "j"))
def fisher_replace(
    w: Sequence[Array], j: Sequence[Array], transform: Sequence[Array],
    coefficients: Sequence[Array],
) -> Iterator[Call]:  # fmt: skip
    """Set W of each natural-gradient estimate to A (J + diag(coefficients) W), with A = transform.

    J is overwritten. On a GPU, coefficients of 0 (if products are not finite) leave W unchanged.
    """
    for new, one, factors, numbers in zip(w, j, transform, coefficients, strict=True):
        yield Call.of(_add_scaled_rows, one, numbers, new)
        yield Call.of(prod, new, factors, one)


@operator(writes=("d", "numbers", "transform", "coefficients"), types=("float64",))
def fisher_step(
    d: Sequence[Array],
    numbers: Sequence[Array],
    transform: Sequence[Array],
    coefficients: Sequence[Array],
    products: Sequence[Array],
    trace: Sequence[float],
    settings: Sequence[tuple[float, int, float, int]],
) -> None:
    """Update each estimate, d (R,) and numbers (rho, doubtful, diverged), with X (num_rows x dim).

    `products` (2, R, R) are K = J J^T and L = H^T H, with H = X W^T, J = H^T X; trace = tr(X X^T);
    settings are eta (the weight of the new scatter), num_rows, alpha, dim. The new W is A (J +
    diag(coefficients) W), with `transform` (R, R) = A and `coefficients` (R, 1), which are results.
    Where the products are not finite, only numbers[DIVERGED] changes (on a GPU also transform and
    coefficients, which become 0).
    """
    states = zip(d, numbers, transform, coefficients, products, trace, settings, strict=True)
    for *arrays, options in states:
        _fisher_step(*arrays, *options)


def _fisher_step(
    d: Array,
    numbers: Array,
    transform: Array,
    coefficients: Array,
    products: Array,
    trace: float,
    eta: float,
    num_rows: int,
    alpha: float,
    dim: int,
) -> None:
    rank = len(d)
    both = products.astype(np.float64)
    both = 0.5 * (both + both.transpose(0, 2, 1))
    if not np.isfinite(both).all():
        numbers[DIVERGED] += 1.0
        return
    k, l = both  # noqa: E741
    rho = float(numbers[RHO])
    eta_n, keep = eta / num_rows, 1.0 - eta
    trace = float(np.asarray(trace).item())
    inv_sqrt_e = 1.0 / np.sqrt(diagonal_e(d, rho, alpha, dim))
    d_rho = d + rho

    # Z = Y Y^T with Y = R T = eta/N E^-1/2 J + (1 - eta) (D + rho I) R, by the small products
    scaled_l = eta_n * keep * (inv_sqrt_e[:, None] * l * inv_sqrt_e)
    z = eta_n**2 * (inv_sqrt_e[:, None] * k * inv_sqrt_e)
    z += scaled_l * d_rho + d_rho[:, None] * scaled_l
    z[np.diag_indices(rank)] += (keep * d_rho) ** 2
    c, u = np.linalg.eigh(z)
    order = np.argsort(-np.abs(c), kind="stable")
    c, u = c[order], u[:, order]
    floor = (rho * keep) ** 2
    numbers[DOUBTFUL] = bool(c[0] > MAX_CONDITION * c[-1] or (c < floor).any())
    sqrt_c = np.sqrt(np.maximum(c, floor))

    # tr(F_{t+1}) = tr(T_t) fixes rho; D_{t+1} = C^1/2 - rho_{t+1} I
    trace_t = eta_n * trace + keep * (dim * rho + d.sum())
    rho = (trace_t - sqrt_c.sum()) / (dim - rank)
    smallest = max(EPSILON, DELTA * float(sqrt_c.max()))
    d[:] = np.maximum(sqrt_c - rho, smallest)
    numbers[RHO] = rho = max(rho, smallest)
    e = diagonal_e(d, rho, alpha, dim)

    # W_{t+1} = A B, B = J + (1-eta)/(eta/N) (D+rho) W, A = eta/N E'^1/2 C^-1/2 U^T E^-1/2
    coefficients[:, 0] = (keep / eta_n) * d_rho
    transform[:] = (eta_n * np.sqrt(e) / sqrt_c)[:, None] * u.T * inv_sqrt_e


@operator(writes=("w",))
def orthonormalize(
    w: Sequence[Array], d: Sequence[Array], numbers: Sequence[Array], alpha: Sequence[float]
) -> None:
    """Make the rows of natural gradient's R = E^-1/2 W orthonormal where roundoff broke it.

    W (R x D) of each estimate changes in place; d (R,), numbers[RHO], alpha give E (`diagonal_e`).
    R becomes C^-1 R with R R^T = C C^T, which keeps the leading (larger) directions.
    """
    for one in zip(w, d, numbers, alpha, strict=True):
        _orthonormalize(*one)


def _orthonormalize(w: Array, d: Array, numbers: Array, alpha: float) -> None:
    if not numbers[DOUBTFUL]:
        return
    rank, dim = w.shape
    sqrt_e = np.sqrt(diagonal_e(d, float(numbers[RHO]), alpha, dim))
    with scratch((rank, rank), like=w) as small:
        prod(small, w, w, trans_b=True)
        gram = small.astype(np.float64) / np.outer(sqrt_e, sqrt_e)
    if np.abs(gram - np.eye(rank)).max() <= ORTHOGONALITY:
        return
    try:
        inverse = np.linalg.inv(np.linalg.cholesky(gram))
    except np.linalg.LinAlgError:
        inverse = None
    if inverse is None or not inverse.max() < 100.0:
        log.warning("Cholesky out of expected range, reorthogonalizing by QR")
        q, r = np.linalg.qr(w.T.astype(np.float64))
        signs = np.where(np.diag(r) < 0.0, -1.0, 1.0)
        w[:] = (q * (signs * sqrt_e)).T
        return
    with scratch(w.shape, like=w) as work:
        copy(work, w)
        transform = sqrt_e[:, None] * np.tril(inverse) / sqrt_e
        prod(w, transform.astype(np.float32), work)


@operator(writes=(), types=("float64",))
def check_finite(numbers: Array) -> None:
    """Raise DivergedError if numbers[DIVERGED] counts minibatches with NaN; no effect on a GPU."""
    if numbers[DIVERGED]:
        raise DivergedError(
            "natural gradient met infinity or NaN in the derivatives or activations: the "
            "training has diverged (lower the learning rate or max-change) or the data is bad"
        )
