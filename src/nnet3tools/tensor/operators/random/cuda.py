"""Random arrays on CUDA: Philox 4x32-10 (Salmon et al. 2011), one counter an element.

The key is the last seed (--srand); the counter's other half numbers the arrays. Both are on the
device, where each array moves the number on, so that a captured graph draws new numbers at each
replay. The host's generator is drawn from as for an array on the CPU, which keeps its later
decisions the same; the numbers themselves are not those of the CPU.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor import recording
from nnet3tools.tensor.cuda.device import Array, get_device
from nnet3tools.tensor.cuda.strided import grid_step
from nnet3tools.tensor.element import element
from nnet3tools.tensor.operators.random import last_seeding, rand
from nnet3tools.tensor.registry import implements

_ROUNDS = """
      const unsigned long long at = ((a * n_b + b) * n_c + c);
      unsigned w0 = (unsigned)at, w1 = (unsigned)(at >> 32), w2 = state[[1]], w3 = 0u;
      unsigned k0 = state[[0]], k1 = 0x5eedu;
      for (int round = 0; round < 10; ++round) {
        const unsigned h0 = __umulhi(0xD2511F53u, w0), l0 = 0xD2511F53u * w0;
        const unsigned h1 = __umulhi(0xCD9E8D57u, w2), l1 = 0xCD9E8D57u * w2;
        w0 = h1 ^ w1 ^ k0; w1 = l1; w2 = h0 ^ w3 ^ k1; w3 = l0;
        k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
      }
      const float u = ((w0 >> 8) + 1u) * 5.9604645e-08f;
"""
_NORMAL = """
      const float v = ((w1 >> 8) + 1u) * 5.9604645e-08f;
      out[[a, b, c]] = (T)(sqrtf(-2.0f * logf(u)) * cosf(6.2831853f * v));"""


_set_number = element("_1 = _2")
_next_number = element("_1 = _1 + uint32(1)")


class _Generator:
    """The generator of one device: `state` (2,) is the key and the number of the next array."""

    def __init__(self) -> None:
        self.state = get_device().empty((2,), np.uint32)
        self._seeding = (-1, 0)

    def is_stale(self) -> bool:
        """Whether there was a new seed since it was last set."""
        return self._seeding[0] != last_seeding()[0]

    def restart(self) -> None:
        """Take the key from the last seed, and number arrays from 0."""
        self._seeding = last_seeding()
        _set_number(self.state[:1], self._seeding[1] & 0x7FFFFFFF)
        _set_number(self.state[1:], 0)


_generators: weakref.WeakKeyDictionary[Any, _Generator] = weakref.WeakKeyDictionary()


def _generator() -> _Generator:
    device = get_device()
    if device not in _generators:
        recording.not_capturable()
        _generators[device] = _Generator()
    found = _generators[device]
    if recording.decide(found.is_stale):
        recording.not_capturable()
        found.restart()
    return found


def _fill(what: str, out: Array, body: str) -> None:
    if out.ndim > 3:
        raise ProgramError(f"random numbers for an array of {out.ndim} axes")
    recording.act(rand)
    state = _generator().state
    whole = out[(None,) * (3 - out.ndim)] if out.ndim < 3 else out
    space = dict(zip("abc", whole.shape, strict=True))
    step: Callable[[], None] = grid_step(what, space, {"out": whole, "state": state}, body)
    step()
    _next_number(state[1:])


@implements("uniform", "cupy")
def uniform(out: Array) -> None:
    """24 random bits an element, in (0, 1]."""
    _fill("uniform", out, _ROUNDS + "      out[[a, b, c]] = (T)u;")


@implements("normal", "cupy")
def normal(out: Array) -> None:
    """Box and Muller's transform, one of each pair."""
    _fill("normal", out, _ROUNDS + _NORMAL)
