"""Products of rows with a window of other rows, for attention over a few frames.

Row r of an output looks at K rows of the input: r, r + shift, ..., r + (K - 1) * shift, so the
input has R + (K - 1) * shift rows for R output rows. All operands have the heads as their middle
axis; they may be views of wider matrices.
"""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator

__all__ = ["add_to_windows", "add_weighted_windows", "window_dots"]


@operator()
def window_dots(out: Array, a: Array, b: Array, shift: int, alpha: float = 1.0) -> None:
    """out[r, h, k] = alpha * a[r, h] . b[r + k * shift, h]; a (R, H, D), out (R, H, K)."""
    for k in range(out.shape[2]):
        window = b[k * shift : k * shift + len(a)]
        out[:, :, k] = alpha * np.sum(np.asarray(a, np.float64) * window, axis=2)


@operator()
def add_weighted_windows(
    out: Array, b: Array, weights: Array, shift: int, alpha: float = 1.0
) -> None:
    """out[r, h] += alpha * sum over k of weights[r, h, k] * b[r + k * shift, h]; out (R, H, D)."""
    for k in range(weights.shape[2]):
        window = b[k * shift : k * shift + len(out)]
        out[...] = out + alpha * np.float64(weights[:, :, k, None]) * window


@operator(writes=("b",))
def add_to_windows(b: Array, a: Array, weights: Array, shift: int, alpha: float = 1.0) -> None:
    """b[r + k * shift, h] += alpha * weights[r, h, k] * a[r, h] for all k; a (R, H, D)."""
    for k in range(weights.shape[2]):
        window = b[k * shift : k * shift + len(a)]
        window[...] = window + alpha * np.float64(weights[:, :, k, None]) * a
