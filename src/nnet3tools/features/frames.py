"""Operations on feature matrices, one row for each frame, as Kaldi's featbin programs do them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError, OptionError
from nnet3tools.io import log
from nnet3tools.number_text import parse_counts

Features = NDArray[np.float32]


def splice(features: Features, left: int, right: int) -> Features:
    """Each frame joined with its `left` previous and `right` next frames.

    The shape is (T, D * (left + 1 + right)). Beyond the ends, the first and last frame are
    repeated. DataError for empty features.
    """
    if features.size == 0:
        raise DataError("SpliceFrames: empty input")
    num_frames = len(features)
    at = np.arange(num_frames)[:, None] + np.arange(-left, right + 1)
    return features[at.clip(0, num_frames - 1)].reshape(num_frames, -1)


def subsample(features: Features, n: int, offset: int = 0) -> Features:
    """Every n-th frame, from frame `offset` on; for negative n, each frame -n times."""
    return features[offset::n] if n > 0 else features.repeat(-n, axis=0)


def paste(parts: list[Features], tolerance: int, utterance: str = "") -> Features | None:
    """The matrices in `parts` joined side by side, cut to the number of rows of the shortest.

    None, after a warning that names `utterance`, if lengths differ by more than `tolerance` frames,
    or a matrix is empty.
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
    """Delay the features by `num_frames` (negative: advance); the end frames fill the gap."""
    size = len(features)
    return features[np.clip(np.arange(size) - num_frames, 0, size - 1)]


def select_columns(selection: str, dim: int) -> list[int]:
    """The column numbers that a selection such as 0,24-22,3-12 names.

    OptionError for a malformed selection, or a column outside [0, dim).
    """
    columns: list[int] = []
    for part in selection.split(","):
        first, dash, last = part.partition("-")
        if (ends := parse_counts((first, last if dash else first))) is None:
            raise OptionError(f"expected columns such as 0,24-22,3-12, found '{selection[:80]}'")
        begin, end = ends
        for column in (begin, end):
            if not 0 <= column < dim:
                raise OptionError(f"column {column} of '{selection}': the features have {dim}")
        step = 1 if begin <= end else -1
        columns += range(begin, end + step, step)
    return columns


def transform(features: Features, matrix: Features) -> Features | None:
    """The features times a linear (D columns) or affine (D + 1 columns) matrix.

    None if the matrix has another number of columns.
    """
    dim = features.shape[1]
    if matrix.shape[1] == dim:
        return features @ matrix.T
    if matrix.shape[1] == dim + 1:
        return features @ matrix[:, :-1].T + matrix[:, -1]
    return None


def voiced_frames(
    log_energy: Features, threshold: float, mean_scale: float, context: int, proportion: float
) -> Features:
    """Float32 vector (frames,): 1 for each frame that is speech, else 0 (ComputeVadEnergy).

    A frame is speech if at least `proportion` of the frames up to `context` before and after it
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
