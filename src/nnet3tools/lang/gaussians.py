"""The Gaussians of a flat start's acoustic model: one for each pdf, all alike (am-diag-gmm.cc).

Nothing here is trained on them; other programs expect them after a transition model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError, EmptyError
from nnet3tools.io.stream import Writer

__all__ = ["Gaussian", "write_gaussians"]


@dataclass(frozen=True)
class Gaussian:
    """A diagonal Gaussian: means and inverse variances, both (D,)."""

    mean: NDArray[np.float32]
    inverse_variance: NDArray[np.float32]

    @classmethod
    def unit(cls, dim: int) -> Gaussian:
        """Mean and variance one."""
        return cls(np.ones(dim, np.float32), np.ones(dim, np.float32))

    @classmethod
    def of_features(cls, matrices: Iterable[NDArray[np.floating]], dim: int) -> Gaussian:
        """With the mean and the variance of all rows; DataError unless they have `dim` columns."""
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
        return cls(mean.astype(np.float32), (1.0 / variance).astype(np.float32))

    @property
    def constant(self) -> np.float32:
        """The log-likelihood of a vector of zeros, summed in float32 as Kaldi does."""
        scaled = self.mean * self.inverse_variance
        terms = 0.5 * np.log(self.inverse_variance) - 0.5 * scaled * scaled / self.inverse_variance
        first = np.float32(-0.5 * np.log(2.0 * np.pi) * len(self.mean))
        return np.add.accumulate(np.append(first, terms.astype(np.float32)))[-1]


def write_gaussians(writer: Writer, gaussian: Gaussian, num_pdfs: int) -> None:
    """Write an AmDiagGmm of as many copies of one Gaussian."""
    writer.write_token("<DIMENSION>")
    writer.write_int32(len(gaussian.mean))
    writer.write_token("<NUMPDFS>")
    writer.write_int32(num_pdfs)
    for _ in range(num_pdfs):
        _write_gaussian(writer, gaussian)


def _write_gaussian(writer: Writer, gaussian: Gaussian) -> None:
    writer.write_token("<DiagGMM>")
    writer.write_newline()
    writer.write_token("<GCONSTS>")
    writer.write_vector(np.array([gaussian.constant], np.float32))
    writer.write_token("<WEIGHTS>")
    writer.write_vector(np.ones(1, np.float32))
    writer.write_token("<MEANS_INVVARS>")
    writer.write_matrix((gaussian.mean * gaussian.inverse_variance)[np.newaxis])
    writer.write_token("<INV_VARS>")
    writer.write_matrix(gaussian.inverse_variance[np.newaxis])
    writer.write_token("</DiagGMM>")
    writer.write_newline()
