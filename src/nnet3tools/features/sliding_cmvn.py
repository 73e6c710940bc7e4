"""Mean and variance normalization over a sliding window (Kaldi's SlidingWindowCmn)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.io import log

_VARIANCE_FLOOR = 1.0e-10


def windows(
    num_frames: int, length: int, shortest: int | None
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Begins and ends of each frame's window [begin, end).

    If `shortest` is None, the frame is at the centre of `length` frames; windows are moved inwards
    at the ends. Otherwise a window has the frame and `length` frames before it, but at least
    `shortest` frames at the start.
    """
    t = np.arange(num_frames)
    if shortest is None:
        begins = np.maximum(t - length // 2, 0)
        ends = begins + length
    else:
        begins, ends = np.maximum(t - length, 0), np.maximum(t + 1, shortest)
    over = np.maximum(ends - num_frames, 0)
    return np.maximum(begins - over, 0), ends - over


def normalize(
    features: NDArray[np.float32],
    begins: NDArray[np.intp],
    ends: NDArray[np.intp],
    norm_vars: bool,
    max_warnings: int,
) -> NDArray[np.float32]:
    """The features minus the mean and, with `norm_vars`, divided by the deviation of windows.

    Frame i has the window `begins[i]` to `ends[i]` - 1. Variances near zero are floored, with at
    most `max_warnings` warnings (-1: no limit).
    """
    wide, counts = features.astype(np.float64), (ends - begins)[:, None]
    mean = _window_sums(wide, begins, ends) / counts
    centred = wide - mean
    if not norm_vars:
        return centred.astype(np.float32)
    variance: NDArray[np.float64] = _window_sums(wide * wide, begins, ends) / counts - mean * mean
    floored = (variance < _VARIANCE_FLOOR).sum(axis=1)
    if len(features) > 1:
        _warn(floored[(floored > 0) & (counts[:, 0] > 1)], len(features), max_warnings)
    centred *= np.maximum(variance, _VARIANCE_FLOOR) ** -0.5
    return np.where(counts == 1, 0.0, centred).astype(np.float32)


def _window_sums(
    values: NDArray[np.float64], begins: NDArray[np.intp], ends: NDArray[np.intp]
) -> NDArray[np.float64]:
    running = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    return running[ends] - running[begins]


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
