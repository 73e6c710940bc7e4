"""Mean and variance normalization over a window of past frames (Kaldi's OnlineCmvn)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.features.cmvn import floor_variance, skip_cmvn
from nnet3tools.features.cmvn_options import OnlineCmvnOptions
from nnet3tools.features.frames import Features

Stats = NDArray[np.float64]


def online_cmvn(
    features: Features,
    overall: Stats,
    speaker: Stats | None,
    options: OnlineCmvnOptions,
    skipped: list[int],
) -> Features:
    """The features, each frame normalized over a window of past frames; (frames, D).

    The window ends with the frame. Statistics, (2, D + 1) each, replace frames that it lacks: first
    `speaker` (the speaker's earlier utterances, if any), then `overall` (all data). Columns in
    `skipped` are not changed. DataError if the statistics do not fit the features.
    """
    check_overall(overall, features.shape[1])
    if not options.norm_means:
        return features
    sums = _sums(features, np.zeros((_num_rows(options), features.shape[1] + 1)))
    stats = _window_stats(sums, options.cmn_window, 0)
    return _normalized(features, stats, overall, speaker, options, skipped)


class OnlineCmvnStream:
    """Normalizes frames that arrive in pieces; results equal those of `online_cmvn` bit for bit."""

    def __init__(self, overall: Stats, options: OnlineCmvnOptions, skipped: list[int]) -> None:
        """Store statistics `overall` (2, D + 1) of all data, and the columns to leave unchanged."""
        check_overall(overall, overall.shape[1] - 1)
        self._overall, self._options, self._skipped = overall, options, skipped
        self._sums = np.zeros((2 * options.cmn_window + 1, _num_rows(options), overall.shape[1]))
        """Sums over the first frames: of none, one, two ...; the oldest are dropped."""
        self._count = 1

    def accept(self, features: Features) -> Features:
        """Return `features`, the next frames of the stream, normalized; (frames, D)."""
        if not self._options.norm_means or not len(features):
            return features
        check_overall(self._overall, features.shape[1])
        parts = np.split(features, range(self._window, len(features), self._window))
        return np.concatenate([self._next(part) for part in parts])

    @property
    def _window(self) -> int:
        return self._options.cmn_window

    def _next(self, features: Features) -> Features:
        """Return `features`, the stream's next frames (at most `cmn_window`), normalized."""
        if self._count + len(features) > len(self._sums):
            kept = self._sums[self._count - self._window - 1 : self._count].copy()
            self._sums[: len(kept)], self._count = kept, len(kept)
        first, self._count = self._count, self._count + len(features)
        new = _sums(features, self._sums[first - 1])
        self._sums[first : self._count] = new[1:]
        stats = _window_stats(self._sums[: self._count], self._window, first - 1)
        return _normalized(features, stats, self._overall, None, self._options, self._skipped)


def check_overall(overall: Stats, dim: int) -> None:
    """DataError unless `overall` is a matrix of CMVN statistics for features of dimension `dim`."""
    if overall.shape != (2, dim + 1):
        raise DataError(
            f"features of dimension {dim} and global statistics of "
            f"{overall.shape[0]} x {overall.shape[1]}"
        )
    if not overall[0, -1] > 0.0:
        raise DataError(f"global statistics over {overall[0, -1]:g} frames")


def _num_rows(options: OnlineCmvnOptions) -> int:
    """Number of rows of statistics to compute: sums, and for variances also sums of squares."""
    return 2 if options.norm_vars else 1


def _normalized(
    features: Features,
    stats: Stats,
    overall: Stats,
    speaker: Stats | None,
    options: OnlineCmvnOptions,
    skipped: list[int],
) -> Features:
    """`features`, normalized by the statistics `stats` of each frame's window.

    Their shape is (frames, 2, D + 1), without variances (frames, 1, D + 1). `speaker`, then
    `overall` add frames that a window lacks. Columns `skipped` are not normalized.
    """
    if speaker is not None:
        _fill(stats, speaker, options.cmn_window, min(options.speaker_frames, speaker[0, -1]))
    _fill(stats, overall, options.cmn_window, options.global_frames)
    if skipped:
        skip_cmvn(overall, skipped)  # DataError for a dimension out of range
        stats[:, 0, skipped] = 0.0
        stats[:, 1:, skipped] = stats[:, :1, -1:]
    mean = stats[:, 0, :-1] / stats[:, 0, -1:]
    if not options.norm_vars:
        return features - mean.astype(np.float32)
    variance = floor_variance(stats[:, 1, :-1] / stats[:, 0, -1:] - mean * mean)
    scale = 1.0 / np.sqrt(variance)
    return features * scale.astype(np.float32) - (mean * scale).astype(np.float32)


def _sums(features: Features, before: Stats) -> Stats:
    """Running sums, (frames + 1, *before.shape): `before` plus the statistics of 0, 1, ... frames.

    `before` has shape (2, D + 1), or (1, D + 1) if the sums of squares are not needed.
    """
    new = np.zeros((len(features) + 1, *before.shape))
    new[0], new[1:, 0, :-1], new[1:, 0, -1] = before, features, 1.0
    if len(before) > 1:
        np.square(features, out=new[1:, 1, :-1], dtype=np.float64)
    return np.add.accumulate(new, axis=0, out=new)


def _window_stats(sums: Stats, window: int, first: int) -> Stats:
    """By frame >= `first`: the statistics of `window` frames up to it, by running `sums`."""
    ends = np.arange(first + 1, len(sums))
    return sums[first + 1 :] - sums[np.maximum(ends - window, 0)]


def _fill(stats: Stats, other: Stats, window: int, most: float) -> None:
    """Fill each of `stats` up to `window` frames with `other`, scaled to at most `most` frames."""
    if other[0, -1] > 0.0:
        lacking = np.clip(window - stats[:, 0, -1], 0.0, most)
        stats += (lacking / other[0, -1])[:, None, None] * other[: stats.shape[1]]
