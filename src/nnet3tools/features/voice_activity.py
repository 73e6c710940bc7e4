"""Energy-based voice activity detection (Kaldi's ComputeVadEnergy)."""

from __future__ import annotations

import numpy as np

from nnet3tools.features.frames import Features


def voiced_frames(
    log_energy: Features, threshold: float, mean_scale: float, context: int, proportion: float
) -> Features:
    """For each frame 1 if it is speech, else 0; shape (frames,), float32.

    A frame is speech if at least this proportion of the frames up to `context` before and after it
    have a log energy above `threshold` plus `mean_scale` times the mean log energy.
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
