"""The global random generator, Kaldi's: glibc's rand() and what kaldi-math.cc makes of it.

For an equal --srand, shuffles, samples and (on the CPU) initial parameters repeat Kaldi's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.glibc import RAND_MAX, GlibcRand
from nnet3tools.tensor.registry import operator

__all__ = [
    "get_state",
    "last_seeding",
    "normal",
    "rand",
    "rand_int",
    "rand_uniform",
    "seed",
    "set_state",
    "uniform",
    "with_prob",
]

_glibc = GlibcRand(1)
_seeding = (0, 1)


def seed(value: int) -> None:
    """Start again, like C's srand(value)."""
    global _glibc, _seeding
    _glibc = GlibcRand(value)
    _seeding = _seeding[0] + 1, value


def last_seeding() -> tuple[int, int]:
    """(how often `seed` was called, with what the last time): generators of devices follow it."""
    return _seeding


def get_state() -> tuple[Any, ...]:
    """The whole state, for `set_state`."""
    return _glibc.state()


def set_state(state: tuple[Any, ...]) -> None:
    """Go back to a state that `get_state` gave."""
    _glibc.set_state(state)


def rand() -> int:
    """C's rand()."""
    return _glibc.rand()


def rand_int(low: int, high: int) -> int:
    """An integer in [low, high], Kaldi's RandInt."""
    if high < low:
        raise ProgramError(f"rand_int({low}, {high}) has nothing to choose from")
    return low if low == high else low + _glibc.rand() % (high + 1 - low)


def rand_uniform() -> np.float32:
    """A number uniform in (0, 1), Kaldi's RandUniform."""
    return np.float32((_glibc.rand() + 1.0) / (RAND_MAX + 2.0))


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


@operator()
def uniform(out: Array) -> None:
    """Fill with numbers uniform in (0, 1], row by row; one `rand` starts the array's own stream."""
    out[...] = np.random.default_rng(rand()).uniform(size=out.shape)


@operator()
def normal(out: Array) -> None:
    """Fill with standard normal numbers; one `rand` starts the array's own stream."""
    out[...] = np.random.default_rng(rand()).normal(size=out.shape)
