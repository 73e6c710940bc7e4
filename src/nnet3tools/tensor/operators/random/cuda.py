"""Random arrays on CUDA: Philox 4x32-10 (Salmon et al. 2011), one counter an element.

The key is the last seed (--srand); the counter's other half is the number of the array. Both are in
device memory, where each array increments the number, so a captured graph draws new numbers at each
replay. Each array also takes one draw from the host's generator, as on the CPU, so later decisions
of the host are the same. The numbers themselves differ from those of the CPU.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor import recording
from nnet3tools.tensor.cuda.device import Array, get_device
from nnet3tools.tensor.cuda.function_files import cuda_functions
from nnet3tools.tensor.element import element
from nnet3tools.tensor.operators.random import last_seeding, rand
from nnet3tools.tensor.registry import implements

_set_number = element("_1 = _2")
_next_number = element("_1 = _1 + uint32(1)")


class _Generator:
    """A device's random generator (Philox), whose `state` is in device memory.

    `state` (2,) is the key, made from the seed, and the number of the next array to fill.
    """

    def __init__(self) -> None:
        self.state = get_device().empty((2,), np.uint32)
        self.seeding = (-1, 0)
        """The seeding (number, seed) of the program since which this generator counts."""

    def restart(self) -> None:
        """Take the Philox key from the last seed; the next array to be filled has number 0."""
        self.seeding = last_seeding()
        _set_number(self.state[:1], self.seeding[1] & 0x7FFFFFFF)
        _set_number(self.state[1:], 0)


_generators: weakref.WeakKeyDictionary[Any, _Generator] = weakref.WeakKeyDictionary()


def _generator() -> _Generator:
    device = get_device()
    if device not in _generators:
        recording.not_capturable()
        _generators[device] = _Generator()
    found = _generators[device]
    if recording.decide(lambda: found.seeding[0] != last_seeding()[0]):
        recording.not_capturable()
        found.restart()
    return found


def _fill(name: str, out: Array) -> None:
    if out.ndim > 3:
        raise ProgramError(f"random numbers for an array of {out.ndim} axes")
    recording.act(rand)
    state = _generator().state
    whole = out[(None,) * (3 - out.ndim)] if out.ndim < 3 else out
    cuda_functions(__file__)[name].on_grid(whole.shape, out=whole, state=state)()
    _next_number(state[1:])


@implements("uniform", "cupy")
def uniform(out: Array) -> None:
    """Fill out with uniform numbers in (0, 1] of 24 random bits."""
    _fill("uniform", out)


@implements("normal", "cupy")
def normal(out: Array) -> None:
    """Fill out with normal numbers by Box and Muller's transform; one of each pair is used."""
    _fill("normal", out)
