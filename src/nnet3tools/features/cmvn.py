"""Cepstral mean and variance normalization (CMVN), by a speaker, an utterance or a sliding window.

Statistics are a (2, D + 1) matrix: the sums of the features and their count, the sums of squares.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.features.frames import Features
from nnet3tools.io import log

_VARIANCE_FLOOR, _WINDOW_VARIANCE_FLOOR = 1.0e-20, 1.0e-10


def accumulate_cmvn(
    stats: NDArray[np.float64] | None, features: Features, weights: Features | None = None
) -> NDArray[np.float64]:
    """Add the statistics of features, with a weight for each frame, to `stats` and return it.

    `stats` is changed in place; None starts with zeros. `weights` None means 1 for each frame.
    """
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
    """A copy of the statistics with mean 0 and variance 1 in `columns`, which CMVN leaves as is."""
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
    """Mean and variance, shape (2, D), of statistics with a positive count."""
    mean, squares = stats[:, :-1] / stats[0, -1]
    return np.stack([mean, squares - mean * mean])


def apply_cmvn(
    stats: NDArray[np.float64], features: Features, norm_vars: bool, reverse: bool = False
) -> Features:
    """The features minus the mean and, with `norm_vars`, divided by the standard deviation.

    `reverse` undoes the normalization. DataError for statistics that do not fit the features.
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
    """The variances, raised to at least 1e-20 with a warning for each that was smaller."""
    for value in variance[variance < _VARIANCE_FLOOR].tolist():
        log.warning(f"Flooring cepstral variance from {value:g} to {_VARIANCE_FLOOR:g}")
    return np.maximum(variance, _VARIANCE_FLOOR)


# -- sliding windows (Kaldi's SlidingWindowCmn)


def windows(
    num_frames: int, length: int, shortest: int | None
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The begin and the end of each frame's window [begin, end), as two arrays (frames,).

    If `shortest` is None, the frame is at the centre of `length` frames; at both ends of the
    features, windows are moved inside. Otherwise a window has the frame and `length` frames before
    it, and at the start at least `shortest` frames.
    """
    t = np.arange(num_frames)
    if shortest is None:
        begins = np.maximum(t - length // 2, 0)
        ends = begins + length
    else:
        begins, ends = np.maximum(t - length, 0), np.maximum(t + 1, shortest)
    over = np.maximum(ends - num_frames, 0)
    return np.maximum(begins - over, 0), ends - over


def normalize_by_windows(
    features: NDArray[np.float32],
    begins: NDArray[np.intp],
    ends: NDArray[np.intp],
    norm_vars: bool,
    max_warnings: int,
) -> NDArray[np.float32]:
    """The features minus their window's mean and, with `norm_vars`, divided by its deviation.

    A window is [begin, end). The first `max_warnings` frames with zero variance get a warning.
    """
    mean, counts = _window_means(features, begins, ends), (ends - begins)[:, None]
    centred = features - mean
    if not norm_vars:
        return centred.astype(np.float32)
    squares = np.square(features, dtype=np.float64)
    variance: NDArray[np.float64] = _window_means(squares, begins, ends) - mean * mean
    floored = (variance < _WINDOW_VARIANCE_FLOOR).sum(axis=1)
    if len(features) > 1:
        _warn(floored[(floored > 0) & (counts[:, 0] > 1)], len(features), max_warnings)
    centred *= np.maximum(variance, _WINDOW_VARIANCE_FLOOR) ** -0.5
    return np.where(counts == 1, 0.0, centred).astype(np.float32)


def _window_means(
    values: NDArray[np.floating], begins: NDArray[np.intp], ends: NDArray[np.intp]
) -> NDArray[np.float64]:
    """The mean row of each window [begin, end) of rows, shape (windows, D), in float64."""
    num_rows, dim = values.shape
    running = np.zeros((num_rows + 1, dim + dim % 2))
    running[1:, :dim] = values
    # Summing two columns as one column of complex numbers takes half the time; the bits are equal.
    pairs = running[1:].view(np.complex128)
    np.add.accumulate(pairs, axis=0, out=pairs)
    sums = running.take(ends, axis=0)
    if begins.any():
        sums -= running.take(begins, axis=0)
    sums /= (ends - begins)[:, None]
    return sums[:, :dim]


def _warn(floored: NDArray[np.intp], num_frames: int, max_warnings: int) -> None:
    shown = floored if max_warnings < 0 else floored[:max_warnings]
    for count in shown.tolist():
        log.warning(
            f"Flooring when normalizing variance, floored {count} elements; num-frames was "
            f"{num_frames}"
        )
    if len(shown) < len(floored):
        log.warning(
            "Suppressing the remaining variance flooring warnings. Run program with "
            "--max-warnings=-1 to see all warnings."
        )
