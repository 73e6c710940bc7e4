"""Arithmetic with single weights in float32, as OpenFst computes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fst.fst import NOT_FINAL


def single(weight: float) -> float:
    """Round `weight` to float32; a rounded sum of two float32 numbers is their float32 sum."""
    return float(np.float32(weight))


def single_sum(weights: NDArray[np.float32]) -> float:
    """Sum of weights in float32, added in order, as Kaldi combines weights along a path."""
    return float(np.cumsum(weights, dtype=np.float32)[-1]) if len(weights) else 0.0


def log_sum(first: float, second: float) -> float:
    """The sum -log(exp(-first) + exp(-second)) of float32 weights, rounded to float32."""
    if first == NOT_FINAL:
        return second
    if second == NOT_FINAL:
        return first
    less, more = (second, first) if first > second else (first, second)
    return single(less - math.log1p(math.exp(-single(more - less))))
