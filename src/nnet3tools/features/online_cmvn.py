"""Mean and variance normalization over a window of past frames (Kaldi's OnlineCmvn)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.features.cmvn import floor_variance, skip_cmvn
from nnet3tools.features.frames import Features
from nnet3tools.features.online_cmvn_options import OnlineCmvnOptions

Stats = NDArray[np.float64]


def online_cmvn(
    features: Features,
    overall: Stats,
    speaker: Stats | None,
    options: OnlineCmvnOptions,
    skipped: list[int],
    first: int = 0,
) -> Features:
    """Frames from `first` on, (frames, D), normalized by the window that ends with the frame.

    Statistics, (2, D + 1) each, stand for the frames that a window lacks: first those of the
    speaker's earlier utterances (None if there are none), then `overall`, those of all data.
    DataError if the statistics do not fit.
    """
    if overall.shape != (2, features.shape[1] + 1):
        raise DataError(
            f"features of dimension {features.shape[1]} and global statistics of "
            f"{overall.shape[0]} x {overall.shape[1]}"
        )
    if not overall[0, -1] > 0.0:
        raise DataError(f"global statistics over {overall[0, -1]:g} frames")
    if not options.norm_means:
        return features[first:]
    stats = _window_sums(features, options.cmn_window, options.norm_vars, first)
    features = features[first:]
    if speaker is not None:
        _fill(stats, speaker, options.cmn_window, min(options.speaker_frames, speaker[0, -1]))
    _fill(stats, overall, options.cmn_window, options.global_frames)
    if skipped:
        skip_cmvn(overall, skipped)  # DataError for a dimension out of range
        stats[:, 0, skipped] = 0.0
        stats[:, 1, skipped] = stats[:, 0, -1:]
    mean = stats[:, 0, :-1] / stats[:, 0, -1:]
    if not options.norm_vars:
        return features - mean.astype(np.float32)
    variance = floor_variance(stats[:, 1, :-1] / stats[:, 0, -1:] - mean * mean)
    scale = 1.0 / np.sqrt(variance)
    return features * scale.astype(np.float32) - (mean * scale).astype(np.float32)


def _window_sums(features: Features, window: int, with_squares: bool, first: int) -> Stats:
    """The CMVN statistics over the window of each frame from `first` on, (frames, 2, D + 1).

    Without `with_squares` the sums of squares are 0.
    """
    size, dim = features.shape
    wide = features.astype(np.float64)
    sums = np.zeros((size + 1, 2, dim + 1))
    np.cumsum(wide, axis=0, out=sums[1:, 0, :-1])
    if with_squares:
        np.cumsum(wide * wide, axis=0, out=sums[1:, 1, :-1])
    sums[:, 0, -1] = np.arange(size + 1)
    ends = np.arange(first + 1, size + 1)
    return sums[first + 1 :] - sums[np.maximum(ends - window, 0)]


def _fill(stats: Stats, other: Stats, window: int, most: float) -> None:
    """Add `other` to `stats`, in place, scaled to the frames (up to `most`) a window lacks."""
    if other[0, -1] > 0.0:
        lacking = np.clip(window - stats[:, 0, -1], 0.0, most)
        stats += (lacking / other[0, -1])[:, None, None] * other
