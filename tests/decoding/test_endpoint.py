"""Endpoint rules against a plain statement of them; silence at the end of a path."""

import math

import numpy as np
import pytest

from nnet3tools.cli.option_specs import specs_of
from nnet3tools.decoding.endpoint import EndpointOptions
from nnet3tools.errors import OptionError
from nnet3tools.recognizer.stream import trailing_silence


def plain_end(frames: int, silent: int, cost: float, shift: float) -> bool:
    """The five rules with their defaults, as the comments in Kaldi's online-endpoint.h say."""
    length, silence = frames * shift, silent * shift
    spoke = length > silence
    return (
        silence >= 5.0
        or (spoke and silence >= 0.5 and cost <= 2.0)
        or (spoke and silence >= 1.0 and cost <= 8.0)
        or (spoke and silence >= 2.0)
        or length >= 20.0
    )


@pytest.mark.parametrize("shift", [0.01, 0.03])
def test_the_default_rules_are_those_of_kaldi(shift):
    options = EndpointOptions("1")
    draw = np.random.default_rng(5)
    ends = 0
    for _ in range(5000):
        frames = int(draw.integers(1, 30 / shift if draw.random() < 0.2 else 4 / shift))
        silent = frames if draw.random() < 0.2 else int(draw.integers(0, frames + 1))
        cost = math.inf if draw.random() < 0.3 else float(draw.choice([0, 1.9, 2, 2.1, 8, 9]))
        expected = plain_end(frames, silent, cost, shift)
        assert options.is_end(frames * shift, silent * shift, cost) == expected
        ends += expected
    assert 500 < ends < 4500


def test_options_have_the_names_and_defaults_of_kaldi():
    shown = {spec.name: spec.default for spec in specs_of(EndpointOptions, "endpoint.")}
    assert shown["endpoint.silence-phones"] == ""
    rules = ("must-contain-nonsilence", "min-trailing-silence", "max-relative-cost")
    expected = {1: (False, 5.0, math.inf), 2: (True, 0.5, 2.0), 4: (True, 2.0, math.inf)}
    for number, values in expected.items():
        assert tuple(shown[f"endpoint.rule{number}.{name}"] for name in rules) == values
    assert shown["endpoint.rule5.min-utterance-length"] == 20.0
    assert len(shown) == 21


@pytest.mark.parametrize("text", ["1:2:1", "1,2", "sil", "1:", "-1"])
def test_a_wrong_list_of_silence_phones_is_refused(text):
    with pytest.raises(OptionError, match=r"--endpoint\.silence-phones"):
        EndpointOptions(text).check()


@pytest.mark.parametrize(
    ("phones", "count"), [([], 0), ([1, 1], 2), ([1, 5, 1, 2], 2), ([1, 2, 5], 0)]
)
def test_silence_is_counted_from_the_end_to_the_last_other_phone(phones, count):
    assert trailing_silence(np.array(phones, np.int32), frozenset([1, 2])) == count
