"""The C library's rand(), so that decisions Kaldi makes with it come out the same here."""

from __future__ import annotations

from itertools import islice

__all__ = ["RAND_MAX", "GlibcRand"]

RAND_MAX = 2**31 - 1


class GlibcRand:
    """glibc's additive-feedback generator (TYPE_3, x^31 + x^3 + 1), as srand(seed) starts it."""

    def __init__(self, seed: int = 1) -> None:
        word = (seed & 0xFFFFFFFF) or 1
        word = word - (1 << 32) if word >= 1 << 31 else word
        state = [word]
        for _ in range(30):
            # C's division truncates: hi and lo of a negative word are negative too
            quotient = abs(word) // 127773 * (1 if word >= 0 else -1)
            word = 16807 * (word - quotient * 127773) - 2836 * quotient
            word = word + RAND_MAX if word < 0 else word
            state.append(word)
        self._state = [w & 0xFFFFFFFF for w in state]
        self._at = 3
        for _ in islice(iter(self._step, None), 310):
            pass

    def _step(self) -> int:
        state, at = self._state, self._at
        value = (state[at] + state[(at + 28) % 31]) & 0xFFFFFFFF
        state[at] = value
        self._at = (at + 1) % 31
        return value

    def rand(self) -> int:
        """The next number in [0, RAND_MAX]."""
        return self._step() >> 1

    def state(self) -> tuple[int, ...]:
        """All that the next numbers depend on, for `set_state`."""
        return (self._at, *self._state)

    def set_state(self, state: tuple[int, ...]) -> None:
        """Go back to what `state` gave."""
        self._at, self._state = state[0], list(state[1:])
