"""What is done to features, matrices of a row for each frame, before training (Kaldi's featbin)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError, OptionError
from nnet3tools.io import log

__all__ = [
    "accumulate_cmvn",
    "apply_cmvn",
    "floor_variance",
    "mean_and_variance",
    "paste",
    "select_columns",
    "shift",
    "skip_cmvn",
    "splice",
    "subsample",
    "transform",
    "voiced_frames",
]

Features = NDArray[np.float32]

_VARIANCE_FLOOR = 1.0e-20


def splice(features: Features, left: int, right: int) -> Features:
    """Each frame with `left` frames before and `right` after it, (T, D * (left + 1 + right)).

    The first and last frame are repeated beyond the ends.
    """
    if features.size == 0:
        raise DataError("SpliceFrames: empty input")
    num_frames = len(features)
    at = np.arange(num_frames)[:, None] + np.arange(-left, right + 1)
    return features[at.clip(0, num_frames - 1)].reshape(num_frames, -1)


def subsample(features: Features, n: int, offset: int = 0) -> Features:
    """Every n-th frame from `offset` on; for negative n each frame -n times."""
    return features[offset::n] if n > 0 else features.repeat(-n, axis=0)


def paste(parts: list[Features], tolerance: int, utterance: str = "") -> Features | None:
    """The columns of all, as many rows as the shortest has; None, after a warning, if the lengths
    differ by more than `tolerance` frames or there are none.
    """
    lengths = [len(part) for part in parts]
    shortest, longest = min(lengths), max(lengths)
    which = f" for utt {utterance}" if utterance else ""
    if longest - shortest > tolerance or shortest == 0:
        log.warning(
            f"Length mismatch {longest} vs. {shortest}{which} exceeds tolerance {tolerance}"
        )
        return None
    if longest > shortest:
        log.vlog(2, f"Length mismatch {longest} vs. {shortest}{which} within tolerance {tolerance}")
    return np.hstack([part[:shortest] for part in parts])


def shift(features: Features, num_frames: int) -> Features:
    """Frame t is frame t - num_frames; the first or last one stands where there is none."""
    size = len(features)
    return features[np.clip(np.arange(size) - num_frames, 0, size - 1)]


def select_columns(selection: str, dim: int) -> list[int]:
    """The columns of `dim` that a selection such as 0,24-22,3-12 names; else OptionError."""
    columns: list[int] = []
    for part in selection.split(","):
        first, dash, last = part.partition("-")
        try:
            begin, end = int(first), int(last if dash else first)
        except ValueError:
            raise OptionError(
                f"expected columns such as 0,24-22,3-12, found '{selection}'"
            ) from None
        for column in (begin, end):
            if not 0 <= column < dim:
                raise OptionError(f"column {column} of '{selection}': the features have {dim}")
        step = 1 if begin <= end else -1
        columns += range(begin, end + step, step)
    return columns


def voiced_frames(
    log_energy: Features, threshold: float, mean_scale: float, context: int, proportion: float
) -> Features:
    """1 where a frame is speech, else 0, shape (frames,), float32.

    In the window of `context` frames to both sides at least this proportion of frames must have an
    energy above `threshold` plus `mean_scale` times the mean.
    """
    limit = np.float32(threshold)
    if mean_scale:
        limit += np.float32(mean_scale) * log_energy.sum(dtype=np.float32) / len(log_energy)
    size = len(log_energy)
    counts = np.concatenate([[0], np.cumsum(log_energy > limit)])
    frames = np.arange(size)
    first, last = np.maximum(frames - context, 0), np.minimum(frames + context + 1, size)
    loud = counts[last] - counts[first]
    needed = (last - first) * np.float32(proportion)
    return (loud >= needed.astype(np.float32)).astype(np.float32)


def transform(features: Features, matrix: Features) -> Features | None:
    """A linear transform, or an affine one if it has a column more; None for any other size."""
    dim = features.shape[1]
    if matrix.shape[1] == dim:
        return features @ matrix.T
    if matrix.shape[1] == dim + 1:
        return features @ matrix[:, :-1].T + matrix[:, -1]
    return None


# -- mean and variance normalisation: statistics are (2, D + 1), of sums and count, of squares


def accumulate_cmvn(
    stats: NDArray[np.float64] | None, features: Features, weights: Features | None = None
) -> NDArray[np.float64]:
    """Statistics with those of the features, frames weighted, added; None stands for none yet."""
    dim = features.shape[1]
    if stats is None:
        stats = np.zeros((2, dim + 1))
    if stats.shape[1] != dim + 1:
        raise DataError(f"features of dimension {dim} after such of {stats.shape[1] - 1}")
    weighted = features if weights is None else features * weights[:, None]
    squares = features * features if weights is None else features * features * weights[:, None]
    stats[0, :dim] += weighted.sum(axis=0, dtype=np.float64)
    stats[1, :dim] += squares.sum(axis=0, dtype=np.float64)
    stats[0, dim] += len(features) if weights is None else weights.sum(dtype=np.float64)
    return stats


def skip_cmvn(stats: NDArray[np.float64], columns: list[int]) -> NDArray[np.float64]:
    """Statistics that leave these columns as they are: their mean is 0 and their variance 1."""
    dim = stats.shape[1] - 1
    if len(stats) != 2 or any(not 0 <= column < dim for column in columns):
        raise DataError(
            f"cannot skip the dimensions {columns}: the statistics are {len(stats)} x {dim + 1}"
        )
    stats = stats.copy()
    stats[0, columns] = 0.0
    stats[1, columns] = stats[0, dim]
    return stats


def mean_and_variance(stats: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean and centred variance, shape (2, D), of statistics whose count is positive."""
    mean, squares = stats[:, :-1] / stats[0, -1]
    return np.stack([mean, squares - mean * mean])


def apply_cmvn(
    stats: NDArray[np.float64], features: Features, norm_vars: bool, reverse: bool = False
) -> Features:
    """Features with the mean (and with `norm_vars` the variance) of the statistics taken out.

    With `reverse` they are put in instead. DataError for statistics that do not fit.
    """
    dim = stats.shape[1] - 1
    if len(stats) not in (1, 2) or features.shape[1] != dim:
        raise DataError(
            f"Dim mismatch: cmvn {len(stats)}x{dim + 1}, feats {len(features)}x{features.shape[1]}"
        )
    if len(stats) == 1 and norm_vars:
        raise DataError("You requested variance normalization but no variance stats are supplied.")
    count = stats[0, dim]
    if not count >= 1.0:
        raise DataError(
            f"Insufficient stats for cepstral mean and variance normalization: count = {count:g}"
        )
    mean = stats[0, :dim] / count
    if not norm_vars:
        return features + (mean if reverse else -mean).astype(np.float32)
    deviation = np.sqrt(floor_variance(stats[1, :dim] / count - mean * mean))
    if not np.isfinite(deviation).all():
        raise DataError("NaN or infinity in cepstral mean/variance computation")
    scale, offset = (deviation, mean) if reverse else (1.0 / deviation, -mean / deviation)
    return features * scale.astype(np.float32) + offset.astype(np.float32)


def floor_variance(variance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Variances not below 1e-20; those below are warned about."""
    for value in variance[variance < _VARIANCE_FLOOR].tolist():
        log.warning(f"Flooring cepstral variance from {value:g} to {_VARIANCE_FLOOR:g}")
    return np.maximum(variance, _VARIANCE_FLOOR)
