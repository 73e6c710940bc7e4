"""A stand-in for a recognizer: the values of samples are words and events."""

import time
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

from nnet3tools.errors import DataError
from nnet3tools.recognizer.results import Alternative, Partial, Result, Word

END, BAD, BUG, SLOW = -1, -2, -3, -4
"""Samples that end the utterance, are refused, meet a bug, and take 0.2 s."""


def sound(*values: int, rate: int = 16000) -> bytes:
    """A tenth of a second for each value, which is its first sample; the others are zero."""
    samples = np.zeros((len(values), rate // 10), "<i2")
    samples[:, 0] = values
    return samples.tobytes()


@dataclass
class FakeStream:
    """A stream that recognizes the word "w7" in a sample of value 7."""

    rate: float
    nbest: int
    words: list[Word] = field(default_factory=list)
    finished: list[Result] = field(default_factory=list)
    rest: bytes = b""
    num_samples: int = 0

    def accept(self, data: bytes) -> bool:
        data = self.rest + data
        self.rest = data[len(data) & ~1 :]
        samples = np.frombuffer(data[: len(data) & ~1], "<i2")
        for place in np.flatnonzero(samples):
            value, begin = int(samples[place]), (self.num_samples + int(place)) / self.rate
            if value == END:
                self._end()
            elif value == BAD:
                raise DataError("bad sound")
            elif value == BUG:
                raise ZeroDivisionError("a bug")
            elif value == SLOW:
                time.sleep(0.2)
            else:
                self.words.append(Word(f"w{value}", begin, begin + 0.1, 0.9))
        self.num_samples += len(samples)
        return bool(self.finished)

    @property
    def num_waiting(self) -> int:
        return len(self.finished)

    def partial(self) -> Partial:
        return Partial(" ".join(word.text for word in self.words))

    def result(self) -> Result:
        if not self.finished:
            self._end()
        return self.finished.pop(0)

    def final(self) -> Result:
        return self.result()

    def _end(self) -> None:
        words = tuple(self.words)
        alternatives = tuple(Alternative(words, -1.0 - i) for i in range(self.nbest))
        self.finished.append(Result(words, alternatives))
        self.words = []


class FakeFeatures:
    """Features that refuse one sampling rate."""

    def check_rate(self, rate: float) -> None:
        if rate == 16001:
            raise DataError("cannot resample from 16001 to 16000")


class FakeRecognizer:
    """A recognizer whose streams are fake."""

    sample_rate = 16000.0
    network = SimpleNamespace(batches=None)

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.features = FakeFeatures()

    def stream(self, sample_rate: float, nbest: int = 0, name: str = "") -> FakeStream:
        self.rates.append(sample_rate)
        return FakeStream(sample_rate, nbest)
