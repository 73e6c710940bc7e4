"""Resampling: the formula, sample by sample; pieces of any size give the same samples, soon."""

import numpy as np
import pytest

from nnet3tools.features.resample import Resampler, resample

RATES = [(44100, 16000), (8000, 16000), (22051, 16000), (399999, 16000), (16000, 8000)]


def plain(samples: np.ndarray, rate: int, new_rate: int, number: int) -> float:
    """An output of LinearResample with 6 zeros and a cut-off at 0.99 of the lower Nyquist rate."""
    cutoff = 0.99 * 0.5 * min(rate, new_rate)
    times = np.arange(len(samples)) / rate - number / new_rate
    window = 0.5 * (1 + np.cos(2 * np.pi * cutoff / 6 * times)) * (np.abs(times) < 3 / cutoff)
    return float((samples * window * 2 * cutoff * np.sinc(2 * cutoff * times)).sum() / rate)


@pytest.mark.parametrize(("rate", "new_rate"), RATES)
def test_pieces_are_resampled_as_the_whole_and_within_two_milliseconds(rate, new_rate):
    draw = np.random.default_rng(rate)
    samples = draw.normal(0, 1000, rate // 5 + 3).astype(np.float32)
    whole = resample(samples, rate, new_rate)
    assert len(whole) == -(-len(samples) * new_rate // rate)
    for number in draw.integers(0, len(whole), 20).tolist():
        assert whole[number] == pytest.approx(plain(samples, rate, new_rate, number), abs=0.01)
    resampler, parts, begin = Resampler(rate, new_rate), [], 0
    while begin < len(samples):
        size = int(draw.integers(0, 500))
        parts.append(resampler.accept(samples[begin : begin + size]))
        begin += size
        seconds = sum(map(len, parts)) / new_rate
        assert seconds >= min(begin, len(samples)) / rate - 0.002
    parts.append(resampler.finish())
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_nothing_is_resampled_to_nothing():
    assert resample(np.zeros(0, np.float32), 8000, 16000).shape == (0,)
