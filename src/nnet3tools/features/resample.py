"""Resampling of sound: band-limited interpolation with a Hann-windowed sinc."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_NUM_ZEROS = 6
_CUTOFF = 0.99
"""Cut-off frequency, relative to the lower of the two Nyquist frequencies."""
_PERIODS_AT_A_TIME = 64
"""Limits the memory for windows of samples."""


def resample(samples: NDArray[np.float32], rate: int, new_rate: int) -> NDArray[np.float32]:
    """The signal, shape (samples,), resampled from `rate` to `new_rate` Hz (LinearResample).

    Output i is sum_j x_j h(j / rate - i / new_rate) / rate with the low-pass filter
    h(t) = sin(2 pi c t) / (pi t) (1 + cos(2 pi c t / 6)) / 2, |t| < 6 / (2 c), of cut-off c.
    Outputs new_rate / gcd(rate, new_rate) apart have the same filter weights.
    """
    resampler = Resampler(rate, new_rate)
    return np.concatenate([resampler.accept(samples), resampler.finish()])


class Resampler:
    """Resamples a signal that comes in pieces; see `resample`."""

    def __init__(self, rate: int, new_rate: int) -> None:
        common = math.gcd(rate, new_rate)
        self._phases, self._step = new_rate // common, rate // common
        cutoff = _CUTOFF * 0.5 * min(rate, new_rate)
        reach = _NUM_ZEROS / (2.0 * cutoff)
        self._width = math.floor(2 * reach * rate) + 2
        times = np.arange(self._phases) / new_rate
        self._firsts = np.ceil((times - reach) * rate).astype(np.int64)
        """The first sample that each phase's output reads, relative to its period's start."""
        inputs = (self._firsts[:, None] + np.arange(self._width)) / rate
        self._weights = (_filter(inputs - times[:, None], cutoff) / rate).astype(np.float32)
        self._margin = -int(self._firsts[0])
        self._samples = np.zeros(self._margin, np.float32)
        """Samples from `margin` before the start of the next period on."""
        self._num_input = self._num_output = 0

    def accept(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """The outputs of the periods that further samples complete."""
        self._num_input += len(samples)
        self._samples = np.concatenate([self._samples, samples.astype(np.float32)])
        needed = self._margin + int(self._firsts[-1]) + self._width
        return self._periods(max(0, (len(self._samples) - needed) // self._step + 1))

    def finish(self) -> NDArray[np.float32]:
        """The remaining outputs: zeros follow the last sample."""
        missing = -(-self._num_input * self._phases // self._step) - self._num_output
        count = -(-missing // self._phases)
        padding = np.zeros(count * self._step + self._margin + 2 * self._width, np.float32)
        self._samples = np.concatenate([self._samples, padding])
        return self._periods(count)[:missing]

    def _periods(self, count: int) -> NDArray[np.float32]:
        """The outputs of the next `count` periods, whose samples must be there."""
        output = np.empty((count, self._phases), np.float32)
        windows = np.lib.stride_tricks.sliding_window_view(self._samples, self._width)
        for begin in range(0, count, _PERIODS_AT_A_TIME):
            periods = np.arange(begin, min(count, begin + _PERIODS_AT_A_TIME)) * self._step
            read = windows[periods[:, None] + (self._firsts + self._margin)]
            # Not a matrix product: its rounding would depend on the number of rows.
            output[begin : begin + len(periods)] = (read * self._weights).sum(axis=-1)
        self._samples = self._samples[count * self._step :]
        self._num_output += output.size
        return output.reshape(-1)


def _filter(times: NDArray[np.float64], cutoff: float) -> NDArray[np.float64]:
    window = 0.5 * (1.0 + np.cos(2.0 * np.pi * cutoff / _NUM_ZEROS * times))
    inside = np.abs(times) < _NUM_ZEROS / (2.0 * cutoff)
    return np.where(inside, window * 2.0 * cutoff * np.sinc(2.0 * cutoff * times), 0.0)
