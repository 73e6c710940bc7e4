"""RandomNumbers: gives an object its own sequence of random numbers."""

import threading
from typing import Self

from nnet3tools import draws

_lock = threading.RLock()


class RandomNumbers:
    """In a `with` block, the process-wide generator continues this object's own sequence.

    Thus results of two objects do not depend on each other. Blocks of several threads take turns.
    """

    def __init__(self, seed: int) -> None:
        self._state = draws.GlibcRand(seed).state()

    def __enter__(self) -> Self:
        _lock.acquire()
        self._outer = draws.get_state()
        draws.set_state(self._state)
        return self

    def __exit__(self, *_: object) -> None:
        self._state = draws.get_state()
        draws.set_state(self._outer)
        _lock.release()
