"""Kaldi's random decisions: the C library's rand() and the functions of kaldi-math.cc on it.

With an equal --srand, this package draws the same decisions as Kaldi. Programs that only draw need
no NumPy. Arrays of random numbers come from `tensor.random`.
"""

from __future__ import annotations

import struct
from typing import Any

from nnet3tools.errors import ProgramError

RAND_MAX = 2**31 - 1


class GlibcRand:
    """glibc's additive-feedback generator (TYPE_3, x^31 + x^3 + 1), seeded as by srand(seed)."""

    def __init__(self, seed: int = 1) -> None:
        word = (seed & 0xFFFFFFFF) or 1
        word = word - (1 << 32) if word >= 1 << 31 else word
        state = [word]
        for _ in range(30):
            # C's division truncates toward zero.
            quotient = abs(word) // 127773 * (1 if word >= 0 else -1)
            word = 16807 * (word - quotient * 127773) - 2836 * quotient
            word = word + RAND_MAX if word < 0 else word
            state.append(word)
        self._state = [w & 0xFFFFFFFF for w in state]
        self._at = 3
        for _ in range(310):
            self.rand()

    def rand(self) -> int:
        """Draw the next number in [0, RAND_MAX]."""
        state, at = self._state, self._at
        # index - 3 is index + 28 modulo 31
        state[at] = value = (state[at] + state[at - 3]) & 0xFFFFFFFF
        self._at = at + 1 if at < 30 else 0
        return value >> 1

    def state(self) -> tuple[int, ...]:
        """The generator's whole state, for `set_state`."""
        return (self._at, *self._state)

    def set_state(self, state: tuple[int, ...]) -> None:
        """Restore a state that `state` returned."""
        self._at, self._state = state[0], list(state[1:])


_glibc = GlibcRand(1)
_seeding = (0, 1)


def seed(value: int) -> None:
    """Restart the global generator, like C's srand(value)."""
    global _glibc, _seeding
    _glibc = GlibcRand(value)
    _seeding = _seeding[0] + 1, value


def last_seeding() -> tuple[int, int]:
    """(number of calls of `seed`, last seed); other generators detect a new seed by it."""
    return _seeding


def get_state() -> tuple[Any, ...]:
    """The state of the global generator, for `set_state`."""
    return _glibc.state()


def set_state(state: tuple[Any, ...]) -> None:
    """Restore a state of the global generator that `get_state` returned."""
    _glibc.set_state(state)


def rand() -> int:
    """Draw a number in [0, RAND_MAX] from the global generator, like C's rand()."""
    return _glibc.rand()


def rand_int(low: int, high: int) -> int:
    """Draw an integer in [low, high], like Kaldi's RandInt."""
    if high < low:
        raise ProgramError(f"rand_int({low}, {high}) has nothing to choose from")
    return low if low == high else low + _glibc.rand() % (high + 1 - low)


def as_float32(value: float) -> float:
    """Round a number to the nearest float32."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def with_prob(probability: float) -> bool:
    """Draw True with the given probability, like Kaldi's WithProb."""
    if not 0.0 <= probability <= 1.1:
        raise ProgramError(f"with_prob({probability}) is not a probability")
    # Kaldi computes with floats; multiplication by a power of two is exact.
    p = as_float32(probability)
    if p in (0.0, 1.0):
        return bool(p)
    if p * 2.0**31 < 128.0:
        return _glibc.rand() < RAND_MAX // 128 and with_prob(p * 128.0)
    return as_float32(_glibc.rand()) < 2.0**31 * p
