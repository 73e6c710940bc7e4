"""Patches and windows on NumPy."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import scratch
from nnet3tools.tensor.registry import implements

_BLOCK = 1 << 16
"""Elements of a temporary that should stay in cache."""


@implements("gather_patches", "numpy")
def gather_patches(out: np.ndarray, frames: np.ndarray, pieces: np.ndarray) -> None:
    """One strided copy for each place of a patch."""
    for k, (begin, end, first, step) in enumerate(pieces.tolist()):
        out[:, :begin, k] = 0.0
        out[:, end:, k] = 0.0
        out[:, begin:end, k] = frames[:, first : first + (end - begin - 1) * step + 1 : step]


@implements("add_patches", "numpy")
def add_patches(frames: np.ndarray, patches: np.ndarray, pieces: np.ndarray) -> None:
    """One strided addition for each place of a patch."""
    for k, (begin, end, first, step) in enumerate(pieces.tolist()):
        target = frames[:, first : first + (end - begin - 1) * step + 1 : step]
        np.add(target, patches[:, begin:end, k], out=target)


@implements("window_dots", "numpy")
def window_dots(
    out: np.ndarray, a: np.ndarray, b: np.ndarray, shift: int, alpha: float = 1.0
) -> None:
    """One sum of products for each place of the window."""
    for k in range(out.shape[2]):
        window = b[k * shift : k * shift + len(a)]
        np.einsum("rhd,rhd->rh", a, window, out=out[:, :, k])
    if alpha != 1.0:
        np.multiply(out, out.dtype.type(alpha), out=out)


def _add_products(
    out: np.ndarray, vectors: np.ndarray, weights: np.ndarray, alpha: np.floating
) -> None:
    """Out += alpha * weights[..., None] * vectors, by blocks of rows."""
    rows = max(1, _BLOCK // max(1, vectors[:1].size))
    with scratch((min(rows, len(out)), *out.shape[1:]), like=out) as block:
        for start in range(0, len(out), rows):
            part = slice(start, start + rows)
            target = out[part]
            scaled = (weights[part] * alpha)[:, :, None]
            product = np.multiply(vectors[part], scaled, out=block[: len(target)])
            np.add(target, product, out=target)


@implements("add_weighted_windows", "numpy")
def add_weighted_windows(
    out: np.ndarray, b: np.ndarray, weights: np.ndarray, shift: int, alpha: float = 1.0
) -> None:
    """One product and addition for each place of the window."""
    for k in range(weights.shape[2]):
        window = b[k * shift : k * shift + len(out)]
        _add_products(out, window, weights[:, :, k], out.dtype.type(alpha))


@implements("add_to_windows", "numpy")
def add_to_windows(
    b: np.ndarray, a: np.ndarray, weights: np.ndarray, shift: int, alpha: float = 1.0
) -> None:
    """One product and addition for each place of the window."""
    for k in range(weights.shape[2]):
        window = b[k * shift : k * shift + len(a)]
        _add_products(window, a, weights[:, :, k], b.dtype.type(alpha))
