"""Sums of weights in the log semiring one at a time, as OpenFst does them: in float32."""

from __future__ import annotations

import math

from nnet3tools.fst.fst import NOT_FINAL
from nnet3tools.fst.weights import single

__all__ = ["log_sum"]


def log_sum(first: float, second: float) -> float:
    """-log(exp(-first) + exp(-second)), each argument and the result being float32 numbers."""
    if first == NOT_FINAL:
        return second
    if second == NOT_FINAL:
        return first
    less, more = (second, first) if first > second else (first, second)
    return single(less - math.log1p(math.exp(-single(more - less))))
