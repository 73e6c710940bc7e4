"""Arithmetic of weights one at a time, as OpenFst does it: in float32."""

from __future__ import annotations

import numpy as np

__all__ = ["single"]


def single(weight: float) -> float:
    """Rounded to float32; the sum of two float32 numbers, rounded so, is their sum in float32."""
    return float(np.float32(weight))
