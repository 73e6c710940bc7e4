"""Random arrays on NumPy: the same numbers as Kaldi draws on the CPU.

Kaldi starts rand_r() of the C library for each array from rand() (kaldi-math.cc, RandomState) and
makes Gaussian pairs by Box and Muller's transform (RandGauss2). rand_r is three steps of a linear
congruential generator a number; since step k from any state s is A_k s + C_k (mod 2^32), a block of
numbers is computed at once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from nnet3tools.tensor.operators.random import rand
from nnet3tools.tensor.registry import implements

_BLOCK = 1 << 14
_16 = np.uint32(16)
MULTIPLIER, INCREMENT = 1103515245, 12345
_SEED_OFFSET = 27437
"""RandomState adds this to rand() for its first state."""


compiled_draw: list[Callable[[np.ndarray, int], bool]] = []
"""Has cpu.py's function that fills a vector from a state of rand_r, once cpu.py is loaded."""


@functools.cache
def _jumps() -> tuple[np.ndarray, np.ndarray]:
    """(A, C), (3, _BLOCK) uint32: 3 j + i + 1 steps of rand_r turn s into A[i, j] * s + C[i, j]."""
    count = 3 * _BLOCK
    factor, offset = np.empty(count, np.uint32), np.empty(count, np.uint32)
    factor[0], offset[0] = MULTIPLIER, INCREMENT
    done = 1
    while done < count:
        # k + d steps are d steps after k steps
        part = slice(done, min(2 * done, count))
        take = slice(0, part.stop - part.start)
        factor[part] = factor[take] * factor[done - 1]
        offset[part] = factor[take] * offset[done - 1] + offset[take]
        done = part.stop
    triples = (a.reshape(-1, 3).T for a in (factor, offset))
    first, second = (np.ascontiguousarray(a) for a in triples)
    return first, second


def _draw(out: np.ndarray) -> None:
    """Fill a vector with uniform numbers, float32 in (0, 1], of a generator that `rand` seeds.

    They are (rand_r + 1) / (RAND_MAX + 2) in double precision, as in Kaldi's RandUniform.
    """
    first = (rand() + _SEED_OFFSET) & 0xFFFFFFFF
    if len(out) >= _BLOCK and any(draw(out, first) for draw in compiled_draw):
        return
    factor, offset = _jumps()
    state = np.uint32(first)
    steps, numbers = np.empty((3, _BLOCK), np.uint32), np.empty(_BLOCK)
    high, middle, low = steps
    for start in range(0, len(out), _BLOCK):
        np.multiply(factor, state, out=steps)
        steps += offset
        state = steps[2, -1]
        steps >>= _16
        high &= 2047
        high <<= 10
        middle &= 1023
        high ^= middle
        high <<= 10
        low &= 1023
        high ^= low
        np.add(high, 1.0, out=numbers)
        numbers /= 2.0**31 + 1.0
        part = out[start : start + _BLOCK]
        part[...] = numbers[: len(part)]


def _uniform(count: int) -> np.ndarray:
    """A vector of `count` uniform numbers in (0, 1], from a generator seeded with `rand()`."""
    out = np.empty(count, np.float32)
    _draw(out)
    return out


@implements("uniform", "numpy")
def uniform(out: np.ndarray) -> None:
    """Fill out with uniform numbers, row after row, as Kaldi's MatrixBase::SetRandUniform."""
    if out.dtype == np.float32 and out.flags.c_contiguous:
        _draw(out.reshape(-1))
    else:
        out[...] = _uniform(out.size).reshape(out.shape)


@implements("normal", "numpy")
def normal(out: np.ndarray) -> None:
    """Fill out with normal numbers, drawn in pairs along rows, as Kaldi's MatrixBase::SetRandn."""
    columns = out.shape[-1] if out.ndim else 1
    rows = out.size // max(1, columns)
    width = columns + columns % 2
    uniforms = _uniform(rows * width).reshape(rows, width // 2, 2)
    radius = np.sqrt(np.float32(-2.0) * np.log(uniforms[..., 0]))
    angle = np.float32(2.0 * math.pi) * uniforms[..., 1]
    pairs = np.empty(uniforms.shape, np.float32)
    np.multiply(radius, np.cos(angle), out=pairs[..., 0])
    np.multiply(radius, np.sin(angle), out=pairs[..., 1])
    out[...] = pairs.reshape(rows, width)[:, :columns].reshape(out.shape)
