"""Arithmetic of weights one at a time, as OpenFst does it: in float32."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["single", "single_sum"]


def single(weight: float) -> float:
    """Rounded to float32; the sum of two float32 numbers, rounded so, is their sum in float32."""
    return float(np.float32(weight))


def single_sum(weights: NDArray[np.float32]) -> float:
    """Added up one after the other in float32, as Kaldi multiplies weights."""
    return float(np.cumsum(weights, dtype=np.float32)[-1]) if len(weights) else 0.0
