"""Resampling of sound: band-limited interpolation with a Hann-windowed sinc."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_NUM_ZEROS = 6
_CUTOFF = 0.99
"""Cut-off frequency, relative to the lower of the two Nyquist frequencies."""


def resample(samples: NDArray[np.float32], rate: int, new_rate: int) -> NDArray[np.float32]:
    """The signal, shape (samples,), resampled from `rate` to `new_rate` Hz (LinearResample).

    Output i is sum_j x_j h(j / rate - i / new_rate) / rate with the low-pass filter
    h(t) = sin(2 pi c t) / (pi t) (1 + cos(2 pi c t / 6)) / 2, |t| < 6 / (2 c), of cut-off c.
    Outputs new_rate / gcd(rate, new_rate) apart have the same filter weights.
    """
    common = math.gcd(rate, new_rate)
    phases, step = new_rate // common, rate // common
    num_output = -(-len(samples) * phases // step)
    output = np.zeros(num_output, np.float32)
    if not num_output:
        return output
    cutoff = _CUTOFF * 0.5 * min(rate, new_rate)
    reach = _NUM_ZEROS / (2.0 * cutoff)
    width = math.floor(2 * reach * rate) + 2
    margin = width + step
    padded = np.pad(samples.astype(np.float32), margin)
    windows = np.lib.stride_tricks.sliding_window_view(padded, width)
    for phase in range(min(phases, num_output)):
        time = phase / new_rate
        first = math.ceil((time - reach) * rate)
        weights = _filter((first + np.arange(width)) / rate - time, cutoff) / rate
        count = len(output[phase::phases])
        rows = windows[first + margin :: step][:count]
        output[phase::phases] = rows @ weights.astype(np.float32)
    return output


def _filter(times: NDArray[np.float64], cutoff: float) -> NDArray[np.float64]:
    window = 0.5 * (1.0 + np.cos(2.0 * np.pi * cutoff / _NUM_ZEROS * times))
    inside = np.abs(times) < _NUM_ZEROS / (2.0 * cutoff)
    return np.where(inside, window * 2.0 * cutoff * np.sinc(2.0 * cutoff * times), 0.0)
