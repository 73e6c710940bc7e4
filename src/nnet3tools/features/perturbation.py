"""Copies of sound at other speeds, or with a number of frames from a list of allowed lengths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ALLOWED_LENGTH_STEP = 1.1
"""Ratio of an allowed length to the one before."""
COPY_LENGTHS = (-1, 0, -2, 1)
"""The allowed length of each copy, relative to the first length above the utterance's own."""


def at_size(samples: NDArray[np.int16], size: int) -> NDArray[np.int16]:
    """Resample sound to `size` samples by cutting off its spectrum or padding it with zeros."""
    spectrum = np.fft.rfft(samples.astype(np.float64))
    wanted = np.zeros(size // 2 + 1, complex)
    shared = min(len(spectrum), len(wanted))
    wanted[:shared] = spectrum[:shared]
    sound = np.fft.irfft(wanted, size) * (size / max(len(samples), 1))
    return np.clip(np.rint(sound), -32768, 32767).astype(np.int16)


def allowed_lengths(shortest: int, longest: int, factor: int = 3) -> list[int]:
    """Numbers of frames about 10 % apart, multiples of `factor`, from `shortest` to `longest`.

    The first is at most `shortest` (but at least 10 * `factor`), the last at least `longest`.
    """
    lengths = [max(10, shortest // factor) * factor]
    while lengths[-1] < longest:
        longer = int(lengths[-1] * ALLOWED_LENGTH_STEP) // factor * factor
        lengths.append(max(lengths[-1] + factor, longer))
    return lengths


def lengths_of_copies(num_frames: int, lengths: Sequence[int], num_copies: int) -> list[int]:
    """For each copy of an utterance, an entry of the ascending `lengths` close to `num_frames`."""
    after = int(np.searchsorted(lengths, num_frames, side="right"))
    numbers = [after + place for place in COPY_LENGTHS[:num_copies]]
    return [lengths[min(max(number, 0), len(lengths) - 1)] for number in numbers]
