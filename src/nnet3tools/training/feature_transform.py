"""The transform that prepares features for training (nnet2/get-feature-transform.h).

LDA makes the within-class covariance the unit matrix and the between-class covariance diagonal.
Directions with little variance between the classes are then scaled down, and the singular values of
the transform are limited.
"""

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError, OptionError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log
from nnet3tools.training.lda import LdaStats

_SMOOTHING = 1.0e-3


@dataclass(frozen=True)
class FeatureTransform:
    """A transform of features: `matrix` (rows, D), or (rows, D + 1) with an offset column last.

    `cholesky` (D, D) is the lower Cholesky factor of the within-class covariance.
    """

    matrix: NDArray[np.float32]
    cholesky: NDArray[np.float64]


def estimate_transform(
    stats: LdaStats,
    dim: int = -1,
    within_class_factor: float = 0.001,
    max_singular_value: float = 5.0,
    remove_offset: bool = True,
) -> FeatureTransform:
    """The transform to `dim` dimensions (all if `dim` <= 0), as Kaldi's FeatureTransformEstimate.

    Direction i, with variance l between the classes and 1 within them, is scaled by
    sqrt((within_class_factor + l) / (1 + l)). Singular values are cut to at most
    `max_singular_value`, if that is positive. `remove_offset` adds a column that makes the mean
    output 0. DataError for statistics without data or a covariance that is not positive definite.
    """
    full_dim = stats.first.shape[1]
    if dim > full_dim:
        raise OptionError(f"--dim={dim}: the statistics have dimension {full_dim}")
    if not stats.total > 0.0:
        raise DataError("LDA statistics without any data")
    within, between, mean = stats.covariances()
    log.log(f"Data count is {stats.total:g}")
    cholesky = _cholesky(within)
    whiten = np.linalg.inv(cholesky)
    directions, variances, _ = np.linalg.svd(whiten @ between @ whiten.T)
    rows = dim if dim > 0 else full_dim
    listed = " ".join(f"{value:g}" for value in variances)
    log.log(f"LDA singular values are  [ {listed} ]\n")
    log.log(f"Sum of all singular values is {variances.sum():g}")
    log.log(f"Sum of selected singular values is {variances[:rows].sum():g}")
    scales = np.sqrt((within_class_factor + variances) / (1.0 + variances))
    matrix = (directions.T @ whiten * scales[:, None])[:rows]
    if max_singular_value > 0.0:
        matrix = _limited(matrix, max_singular_value)
    if remove_offset:
        matrix = np.hstack([matrix, -(matrix @ mean)[:, None]])
    return FeatureTransform(matrix.astype(np.float32), cholesky)


def _cholesky(covariance: NDArray) -> NDArray:
    """The lower Cholesky factor of a covariance (D, D), which is smoothed if it is singular."""
    try:
        return np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        smooth = _SMOOTHING * np.trace(covariance) / len(covariance)
    log.log(
        f"Cholesky failed (possibly not +ve definite), so adding {smooth:g} to diagonal and trying "
        "again.\n"
    )
    try:
        return np.linalg.cholesky(covariance + smooth * np.eye(len(covariance)))
    except np.linalg.LinAlgError:
        raise DataError("the within-class covariance is not positive definite") from None


def _limited(matrix: NDArray, limit: float) -> NDArray:
    """The matrix with its singular values cut to at most `limit`."""
    u, values, vt = np.linalg.svd(matrix, full_matrices=False)
    above = int((values > limit).sum())
    if above == 0:
        return matrix
    log.log(
        f"Applied ceiling to {above} out of {len(values)} singular values of transform using "
        f"ceiling {limit:g}, max is {values.max():g}"
    )
    return u * np.minimum(values, limit) @ vt
