"""Random arrays on CUDA: Philox 4x32-10 (Salmon et al. 2011), one counter an element.

Each array's key is drawn from the host's generator, so that a run repeats for an equal --srand
(its numbers are not those of the CPU).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.cupy_backend.device import Array
from nnet3tools.tensor.cupy_backend.strided import grid_step
from nnet3tools.tensor.random import rand
from nnet3tools.tensor.registry import implements

_ROUNDS = """
      const unsigned long long at = ((a * n_b + b) * n_c + c);
      unsigned w0 = (unsigned)at, w1 = (unsigned)(at >> 32), w2 = 0u, w3 = 0u;
      unsigned k0 = key, k1 = 0x5eedu;
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


def _fill(what: str, out: Array, body: str) -> None:
    if out.ndim > 3:
        raise ProgramError(f"random numbers for an array of {out.ndim} axes")
    whole = out[(None,) * (3 - out.ndim)] if out.ndim < 3 else out
    space = dict(zip("abc", whole.shape, strict=True))
    step: Callable[[], None] = grid_step(what, space, {"out": whole}, body, key=np.uint32(rand()))
    step()


@implements("uniform", "cupy")
def uniform(out: Array) -> None:
    """24 random bits an element, in (0, 1]."""
    _fill("uniform", out, _ROUNDS + "      out[[a, b, c]] = (T)u;")


@implements("normal", "cupy")
def normal(out: Array) -> None:
    """Box and Muller's transform, one of each pair."""
    _fill("normal", out, _ROUNDS + _NORMAL)
