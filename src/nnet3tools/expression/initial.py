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


def zeros(shape: Sequence[int]) -> np.ndarray:
    """A float32 array of zeros."""
    return np.zeros(tuple(shape), np.float32)


def ones(shape: Sequence[int]) -> np.ndarray:
    """A float32 array of ones."""
    return np.ones(tuple(shape), np.float32)


def _deviation(shape: Sequence[int], fan_in: bool, fan_out: bool) -> float:
    """sqrt(1 / n) for n = rows if `fan_in`, columns if `fan_out`, their mean if both or neither."""
    if len(shape) < 2:
        raise ExpressionError(f"initial values need a matrix, found shape {tuple(shape)}")
    chosen = [n for n, is_chosen in zip(shape[-2:], (fan_in, fan_out), strict=True) if is_chosen]
    sizes = chosen or shape[-2:]
    return math.sqrt(len(sizes) / sum(sizes))


def glorot_normal(shape: Sequence[int], fan_in: bool = False, fan_out: bool = False) -> np.ndarray:
    """Normal random numbers with variance 2 / (rows + columns) (Glorot and Bengio 2010).

    With `fan_in` alone the variance is 1 / rows, with `fan_out` alone 1 / columns.
    """
    return normal(shape, 0.0, _deviation(shape, fan_in, fan_out))


def glorot_uniform(shape: Sequence[int], fan_in: bool = False, fan_out: bool = False) -> np.ndarray:
    """Uniform random numbers with mean 0 and the variance that `glorot_normal` documents."""
    limit = math.sqrt(3.0) * _deviation(shape, fan_in, fan_out)
    return uniform(shape, -limit, limit)


def he_normal(shape: Sequence[int]) -> np.ndarray:
    """Normal random numbers with variance 2 / rows, for layers with relu (He et al. 2015)."""
    return normal(shape, 0.0, math.sqrt(2.0) * _deviation(shape, True, False))


def he_uniform(shape: Sequence[int]) -> np.ndarray:
    """Uniform random numbers with variance 2 / rows."""
    limit = math.sqrt(6.0) * _deviation(shape, True, False)
    return uniform(shape, -limit, limit)


def eye(size: int, scale: float = 1.0) -> np.ndarray:
    """The unit matrix times `scale`."""
    return np.eye(size, dtype=np.float32) * np.float32(scale)
