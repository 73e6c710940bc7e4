"""Flags in a GPU's memory: whether optional work of a recorded step is done in the present run.

The host decides for each run of the step (recording.optional) and sets the flags before the step's
graph is launched. Kernels of optional work look at them (cuda/level_source.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.tensor.arrays import asarray, zeros
from nnet3tools.tensor.element import element
from nnet3tools.tensor.recording import unrecorded

_WORD = 48
"""Flags that one launch sets; so many bits of a float64 are exact."""
# flags (_1): bits of the number _3, given by their places (_2) as negative powers of 2
_set_bits = element("_1 = floor(_2 * _3) - 2 * floor(_2 * _3 * 0.5)")


class Flag:
    """A bool, for host (`is_set`) and GPU, that says whether a replay does some recorded work.

    `array` (1,) holds the same on a GPU: 1 or 0.
    """

    def __init__(self, array: Any) -> None:
        self.is_set, self.array = True, array

    def guard(self, work: Callable[[], Any]) -> Callable[[], Any]:
        """A callable that does `work` if the flag is set when it, or a CUDA graph with it, runs."""
        from nnet3tools.tensor.cuda.launches import only_if

        return lambda: only_if(self.array, self.is_set, work)


class Flags:
    """The flags of a recorded step: each says whether a replay does one block of optional work."""

    def __init__(self) -> None:
        self._flags: list[Flag] = []
        self._words: list[Any] = []
        self._places: Any = None
        self._sent: list[float] = []

    def get(self, number: int, like: Any) -> Flag:
        """Flag `number` (from 0); makes all missing ones up to it, on the device of `like`."""
        while len(self._flags) <= number:
            with unrecorded():
                word = zeros(_WORD, like, np.float64)
                self._places = asarray(0.5 ** np.arange(_WORD), like=like)
            self._words.append(word)
            self._sent.append(0.0)
            self._flags += [Flag(word[i : i + 1]) for i in range(_WORD)]
        return self._flags[number]

    def send(self) -> None:
        """Copy to the GPU all flags (see Flag) whose `is_set` has changed since the last call."""
        for i, word in enumerate(self._words):
            flags = self._flags[i * _WORD : (i + 1) * _WORD]
            bits = sum(2.0**n for n, flag in enumerate(flags) if flag.is_set)
            if bits != self._sent[i]:
                _set_bits(word, self._places, bits)
                self._sent[i] = bits
