"""The Gaussians of a flat start's acoustic model: one for each pdf (am-diag-gmm.cc).

All are equal, unless their means are perturbed. Nothing trains them here: other programs expect
Gaussians after a transition model in a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError, EmptyError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.stream import Writer


@dataclass(frozen=True)
class Gaussian:
    """A Gaussian with diagonal covariance in Kaldi's form; both arrays have shape (D,).

    The arrays are inverse variances, and means times inverse variances.
    """

    scaled_mean: NDArray[np.float32]
    inverse_variance: NDArray[np.float32]

    @classmethod
    def unit(cls, dim: int) -> Gaussian:
        """A Gaussian of dimension `dim` with mean 1 and variance 1."""
        return cls(np.ones(dim, np.float32), np.ones(dim, np.float32))

    @classmethod
    def of_features(cls, matrices: Iterable[NDArray[np.floating]], dim: int) -> Gaussian:
        """Estimate a Gaussian with the mean and variance of all rows of the matrices (n, dim)."""
        count, total, squares = 0, np.zeros(dim), np.zeros(dim)
        for matrix in matrices:
            if matrix.shape[1] != dim:
                raise DataError(f"expected features of dimension {dim}, found {matrix.shape[1]}")
            count += len(matrix)
            total += matrix.sum(0, dtype=np.float64)
            squares += (matrix.astype(np.float64) ** 2).sum(0)
        if not count:
            raise EmptyError("no features were seen.")
        mean = total / count
        variance = squares / count - mean**2
        if not (variance > 0.0).all():
            raise DataError("bad variance")
        with np.errstate(all="ignore"):  # constant() refuses overflow
            inverse = (1.0 / variance).astype(np.float32)
            return cls(mean.astype(np.float32) * inverse, inverse)

    def perturbed(self, factor: float) -> Gaussian:
        """A copy whose means are moved by `factor` * N(0, 1) standard deviations each.

        Two numbers of `rand` make a normal number, as in Kaldi (RandGauss, DiagGmm::Perturb). The
        result equals Kaldi's, except for the last bit where its BLAS adds a product without
        rounding. Functions are evaluated in float64 and rounded, as in the C library.
        """
        from nnet3tools.tensor.operators.random import rand_uniform  # slow to import

        draws = np.array([rand_uniform() for _ in range(2 * len(self.scaled_mean))], np.float32)
        first, second = draws.reshape(-1, 2).astype(np.float64).T
        radius = np.sqrt(np.float32(-2.0) * np.log(first).astype(np.float32))
        angle = (2.0 * np.pi * second).astype(np.float32)
        normal = radius * np.cos(angle, dtype=np.float64).astype(np.float32)
        with np.errstate(all="ignore"):
            moved = np.float32(factor) * (normal * np.sqrt(self.inverse_variance))
            return Gaussian(self.scaled_mean + moved, self.inverse_variance)

    @cached_property
    def constant(self) -> np.float32:
        """Log-likelihood at 0, summed in float32 as in Kaldi; infinite: -inf; NaN: DataError."""
        scaled, inverse = self.scaled_mean.astype(np.float64), self.inverse_variance
        total = np.float32(-0.5 * np.log(2.0 * np.pi) * len(inverse))
        with np.errstate(all="ignore"):
            terms = 0.5 * np.log(inverse).astype(np.float64) - 0.5 * scaled * scaled / inverse
            for term in terms:
                total = np.float32(total + term)
        if np.isnan(total):
            raise DataError("a Gaussian's constant is not a number: its mean or variance is none")
        return -abs(total) if np.isinf(total) else total


def write_gaussians(writer: Writer, gaussians: Sequence[Gaussian]) -> None:
    """Write an acoustic model (Kaldi's AmDiagGmm) with one Gaussian for each pdf."""
    writer.write_token("<DIMENSION>").write_int32(len(gaussians[0].scaled_mean) if gaussians else 0)
    writer.write_token("<NUMPDFS>").write_int32(len(gaussians))
    for gaussian in gaussians:
        writer.write_token("<DiagGMM>").write_newline()
        writer.write_token("<GCONSTS>").write_vector(np.array([gaussian.constant], np.float32))
        writer.write_token("<WEIGHTS>").write_vector(np.ones(1, np.float32))
        writer.write_token("<MEANS_INVVARS>").write_matrix(gaussian.scaled_mean[np.newaxis])
        writer.write_token("<INV_VARS>").write_matrix(gaussian.inverse_variance[np.newaxis])
        writer.write_token("</DiagGMM>").write_newline()
