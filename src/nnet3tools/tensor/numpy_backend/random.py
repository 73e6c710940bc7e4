"""Random arrays on NumPy: number for number what Kaldi draws on the CPU.

Kaldi starts rand_r() of the C library for each array from rand() (kaldi-math.cc, RandomState) and
makes Gaussian pairs by Box and Muller's transform (RandGauss2). rand_r is three steps of a linear
congruential generator a number; since step k from any state s is A_k s + C_k (mod 2^32), a block of
numbers is computed at once.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from nnet3tools.tensor.random import rand
from nnet3tools.tensor.registry import implements

_BLOCK = 1 << 14
_MULTIPLIER, _INCREMENT = 1103515245, 12345
_SEED_OFFSET = 27437
"""What RandomState adds to rand()."""


@functools.cache
def _jumps() -> tuple[np.ndarray, np.ndarray]:
    """A_k and C_k for the three steps of each number of a block, both (3, _BLOCK) uint32."""
    count = 3 * _BLOCK
    factor, offset = np.empty(count, np.uint32), np.empty(count, np.uint32)
    factor[0], offset[0] = _MULTIPLIER, _INCREMENT
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


def _rand_r(count: int) -> np.ndarray:
    """`count` numbers of a fresh RandomState, int32 in [0, RAND_MAX]."""
    factor, offset = _jumps()
    out = np.empty(count, np.int32)
    state = np.uint32((rand() + _SEED_OFFSET) & 0xFFFFFFFF)
    for start in range(0, count, _BLOCK):
        steps = factor * state + offset
        state = steps[2, -1]
        high, middle, low = (steps >> np.uint32(16)).view(np.int32)
        block = (((high & 2047) << 10) ^ (middle & 1023)) << 10
        size = min(_BLOCK, count - start)
        np.bitwise_xor(block[:size], (low & 1023)[:size], out[start : start + size])
    return out


def _uniform(count: int) -> np.ndarray:
    """Kaldi's RandUniform: float32 in (0, 1]."""
    out = _rand_r(count) + 1.0
    out /= 2.0**31 + 1.0
    return out.astype(np.float32)


@implements("uniform", "numpy")
def uniform(out: np.ndarray) -> None:
    """MatrixBase::SetRandUniform: row after row."""
    out[...] = _uniform(out.size).reshape(out.shape)


@implements("normal", "numpy")
def normal(out: np.ndarray) -> None:
    """MatrixBase::SetRandn: pairs along each row, one by itself at the end of an odd row."""
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
