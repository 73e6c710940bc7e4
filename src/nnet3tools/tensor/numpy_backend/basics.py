"""Copies, fills, sums and the inner product on NumPy."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import scratch
from nnet3tools.tensor.registry import implements

_BLOCK = 1 << 15


@implements("copy", "numpy")
def copy(out: np.ndarray, src: np.ndarray) -> None:
    """Broadcast copy with conversion."""
    np.copyto(out, src, casting="unsafe")


@implements("fill", "numpy")
def fill(out: np.ndarray, value: float) -> None:
    """Set every element."""
    out.fill(value)


@implements("scale", "numpy")
def scale(out: np.ndarray, alpha: float) -> None:
    """Multiply in place."""
    np.multiply(out, out.dtype.type(alpha), out=out)


@implements("add", "numpy")
def add(out: np.ndarray, src: np.ndarray, alpha: float = 1.0) -> None:
    """Add alpha times src, by blocks of rows unless alpha is 1 or -1."""
    if alpha == 1.0:
        np.add(out, src, out=out, casting="unsafe")
    elif alpha == -1.0:
        np.subtract(out, src, out=out, casting="unsafe")
    elif out.ndim == 0 or src.ndim < out.ndim or src.shape[0] != out.shape[0]:
        np.add(out, np.multiply(src, out.dtype.type(alpha)), out=out, casting="unsafe")
    else:
        rows = max(1, _BLOCK // max(1, src[:1].size))
        factor = out.dtype.type(alpha)
        with scratch((min(rows, len(out)), *src.shape[1:]), like=out) as block:
            for start in range(0, len(out), rows):
                part = src[start : start + rows]
                product = np.multiply(part, factor, out=block[: len(part)], casting="unsafe")
                target = out[start : start + rows]
                np.add(target, product, out=target)


@implements("dot", "numpy")
def dot(a: np.ndarray, b: np.ndarray) -> float:
    """Float32 products summed in blocks, the blocks in float64."""
    if a.ndim == 0:
        return float(a) * float(b)
    if a.dtype == np.float64:
        return float(np.vdot(a, b))
    flat_a, flat_b = (x.reshape(-1) if x.flags.c_contiguous else x for x in (a, b))
    if flat_a.ndim != flat_b.ndim:
        flat_a, flat_b = a, b
    rows = max(1, 4096 // max(1, flat_a[:1].size))
    total = 0.0
    for start in range(0, len(flat_a), rows):
        part = flat_a[start : start + rows], flat_b[start : start + rows]
        total += float(np.vdot(*part))
    return total
