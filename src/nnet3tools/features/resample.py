"""Resampling of sound: band-limited interpolation with a Hann-windowed sinc."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_NUM_ZEROS = 6
_CUTOFF = 0.99
"""Cut-off frequency, relative to the lower of the two Nyquist frequencies."""
_MOST_PHASES = 1000
"""With more phases, such as 16000 from 22051 to 16000 Hz, their weights are not kept."""
_OUTPUTS_AT_A_TIME = 1 << 14
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
    """Resamples a signal that arrives in pieces; the result equals that of `resample`."""

    def __init__(self, rate: int, new_rate: int) -> None:
        common = math.gcd(rate, new_rate)
        self._rate, self._new_rate = rate, new_rate
        self._phases, self._step = new_rate // common, rate // common
        self._cutoff = _CUTOFF * 0.5 * min(rate, new_rate)
        self._reach = _NUM_ZEROS / (2.0 * self._cutoff)
        self._width = math.floor(2 * self._reach * rate) + 2
        self._table: NDArray[np.float32] | None = None
        if self._phases <= _MOST_PHASES:
            self._table = self._weights(np.arange(self._phases))
        margin = -int(self._firsts(np.zeros(1, np.int64))[0])
        self._samples = np.zeros(margin, np.float32)
        """Samples that further outputs read; before the first sample there are zeros."""
        self._base = -margin
        """The number of the first of these samples."""
        self._num_input = self._num_output = 0

    def accept(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Add samples of the input; returns the output samples that can now be computed."""
        self._num_input += len(samples)
        self._samples = np.concatenate([self._samples, samples.astype(np.float32)])
        end = self._num_input - self._width
        # The last output that reads no sample after the last one, or one before it.
        last = math.floor((end / self._rate + self._reach) * self._new_rate) - 1
        return self._outputs(max(self._num_output, last))

    def finish(self) -> NDArray[np.float32]:
        """End the input, as if zeros followed; returns the remaining output samples."""
        padding = np.zeros(2 * self._width, np.float32)
        self._samples = np.concatenate([self._samples, padding])
        return self._outputs(-(-self._num_input * self._phases // self._step))

    def _outputs(self, end: int) -> NDArray[np.float32]:
        """The output samples from the next up to `end` - 1; the input must have all they need."""
        output = np.empty(end - self._num_output, np.float32)
        if not len(output):
            return output
        windows = np.lib.stride_tricks.sliding_window_view(self._samples, self._width)
        for begin in range(self._num_output, end, _OUTPUTS_AT_A_TIME):
            numbers = np.arange(begin, min(end, begin + _OUTPUTS_AT_A_TIME))
            phases = numbers % self._phases
            weights = self._weights(phases) if self._table is None else self._table[phases]
            read = windows[self._firsts(numbers) - self._base]
            # Not a matrix product: its rounding would depend on the number of rows.
            at = begin - self._num_output
            output[at : at + len(numbers)] = (read * weights).sum(axis=-1)
        self._num_output = end
        done = int(self._firsts(np.array([end]))[0]) - self._base
        self._samples = self._samples[done:]
        self._base += done
        return output

    def _firsts(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each output number, the number of the first input sample that it depends on."""
        periods, phases = np.divmod(numbers, self._phases)
        firsts = np.ceil((phases / self._new_rate - self._reach) * self._rate).astype(np.int64)
        return periods * self._step + firsts

    def _weights(self, phases: NDArray[np.int64]) -> NDArray[np.float32]:
        """Filter weights (N, width) of the outputs numbered `phases` (N,), which are periodic."""
        inputs = (self._firsts(phases)[:, None] + np.arange(self._width)) / self._rate
        weights = _filter(inputs - (phases / self._new_rate)[:, None], self._cutoff) / self._rate
        return weights.astype(np.float32)


def _filter(times: NDArray[np.float64], cutoff: float) -> NDArray[np.float64]:
    window = 0.5 * (1.0 + np.cos(2.0 * np.pi * cutoff / _NUM_ZEROS * times))
    inside = np.abs(times) < _NUM_ZEROS / (2.0 * cutoff)
    return np.where(inside, window * 2.0 * cutoff * np.sinc(2.0 * cutoff * times), 0.0)


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
    """Lengths of copies: lengths[i - 1], [i], [i - 2], [i + 1]; i is the first > num_frames."""
    after = int(np.searchsorted(lengths, num_frames, side="right"))
    numbers = [after + place for place in COPY_LENGTHS[:num_copies]]
    return [lengths[min(max(number, 0), len(lengths) - 1)] for number in numbers]
