"""The global random generator: single decisions by glibc's rand() as in Kaldi, arrays by Philox.

`rand_int` and `with_prob` follow kaldi-math.cc, so that shuffles and samples repeat Kaldi's for an
equal --srand. `uniform` and `normal` fill arrays; they draw from their own stream of the same seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.glibc import RAND_MAX, GlibcRand
from nnet3tools.tensor.registry import operator

__all__ = ["get_state", "normal", "rand", "rand_int", "seed", "set_state", "uniform", "with_prob"]

_glibc = GlibcRand(1)
_seed, _drawn = 1, 0
"""Philox's key is the seed; its counter's high word is how many arrays were drawn since."""


def seed(value: int) -> None:
    """Start again, like C's srand(value)."""
    global _glibc, _seed, _drawn
    _glibc, _seed, _drawn = GlibcRand(value), value, 0


def get_state() -> tuple[Any, ...]:
    """The whole state, for `set_state`."""
    return tuple(_glibc._state), _glibc._at, _seed, _drawn


def set_state(state: tuple[Any, ...]) -> None:
    """Go back to a state that `get_state` gave."""
    global _seed, _drawn
    words, _glibc._at, _seed, _drawn = state
    _glibc._state = list(words)


def rand() -> int:
    """C's rand()."""
    return _glibc.rand()


def rand_int(low: int, high: int) -> int:
    """An integer in [low, high], Kaldi's RandInt."""
    if high < low:
        raise ProgramError(f"rand_int({low}, {high}) has nothing to choose from")
    return low if low == high else low + _glibc.rand() % (high + 1 - low)


def with_prob(probability: float) -> bool:
    """True with this probability, Kaldi's WithProb."""
    if not 0.0 <= probability <= 1.1:
        raise ProgramError(f"with_prob({probability}) is not a probability")
    p = np.float32(probability)
    if p == 0.0 or p == 1.0:
        return bool(p)
    if p * np.float32(RAND_MAX) < 128.0:
        return _glibc.rand() < RAND_MAX // 128 and with_prob(float(p * np.float32(128.0)))
    return bool(np.float32(_glibc.rand()) < np.float32(RAND_MAX + 1.0) * p)


def philox_key() -> tuple[int, int]:
    """(seed, number of this array) for a backend's counter-based generator; advances the stream."""
    global _drawn
    _drawn += 1
    return _seed, _drawn


@operator()
def uniform(out: Array) -> None:
    """Fill with numbers uniform in (0, 1)."""
    out[...] = np.random.default_rng(philox_key()).uniform(size=out.shape)


@operator()
def normal(out: Array) -> None:
    """Fill with standard normal numbers."""
    out[...] = np.random.default_rng(philox_key()).normal(size=out.shape)
