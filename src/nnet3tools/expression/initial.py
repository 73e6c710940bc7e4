"""Initial values of parameters, as float32 arrays: `g.param("w", initial.normal((3, 2)))`.

Random values come from the global generator, `tensor.random.seed`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnet3tools import tensor
from nnet3tools.expression.shapes import ExpressionError


def normal(shape: Sequence[int], mean: float = 0.0, stddev: float = 1.0) -> np.ndarray:
    """A float32 array of normally distributed random numbers."""
    made = np.empty(tuple(shape), np.float32)
    tensor.random.normal(made)
    return made * np.float32(stddev) + np.float32(mean)


def uniform(shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> np.ndarray:
    """A float32 array of random numbers that are uniformly distributed in [low, high]."""
    made = np.empty(tuple(shape), np.float32)
    tensor.random.uniform(made)
    return made * np.float32(high - low) + np.float32(low)


def _glorot(shape: Sequence[int]) -> float:
    if len(shape) < 2:
        raise ExpressionError(f"glorot needs a matrix, found shape {tuple(shape)}")
    return math.sqrt(2.0 / (shape[-2] + shape[-1]))


def glorot_normal(shape: Sequence[int]) -> np.ndarray:
    """Normal random numbers with variance 2 / (rows + columns) (Glorot and Bengio 2010)."""
    return normal(shape, 0.0, _glorot(shape))


def glorot_uniform(shape: Sequence[int]) -> np.ndarray:
    """Uniform random numbers with variance 2 / (rows + columns)."""
    limit = math.sqrt(3.0) * _glorot(shape)
    return uniform(shape, -limit, limit)


def eye(size: int, scale: float = 1.0) -> np.ndarray:
    """The unit matrix times `scale`."""
    return np.eye(size, dtype=np.float32) * np.float32(scale)
