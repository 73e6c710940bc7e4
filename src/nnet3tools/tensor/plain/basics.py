"""Copies, fills, sums and the inner product on NumPy."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import scratch
from nnet3tools.tensor.registry import implements

_BLOCK = 1 << 15
_DOT_BLOCK = 1 << 12
"""Products that are added up in float32."""


@implements("copy", "numpy")
def copy(out: np.ndarray, src: np.ndarray) -> None:
    """Set out to src, which is broadcast and converted to out's type."""
    np.copyto(out, src, casting="unsafe")


@implements("fill", "numpy")
def fill(out: np.ndarray, value: float) -> None:
    """Set every element of out."""
    out.fill(value)


@implements("scale", "numpy")
def scale(out: np.ndarray, alpha: float) -> None:
    """Multiply out by alpha."""
    np.multiply(out, out.dtype.type(alpha), out=out)


@implements("add", "numpy")
def add(out: np.ndarray, src: np.ndarray, alpha: float = 1.0) -> None:
    """Add alpha times src to out. As in BLAS, src is not read if alpha is 0."""
    if alpha == 0.0:
        return
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
    """The sum of a * b; float32 products are added up in blocks, and the blocks in float64."""
    if a.ndim == 0:
        return float(a) * float(b)
    if a.dtype == np.float64:
        return float(np.vdot(a, b))
    if a.flags.c_contiguous and b.flags.c_contiguous:
        count, rest = divmod(a.size, _DOT_BLOCK)
        flat_a, flat_b = a.reshape(-1), b.reshape(-1)
        whole = a.size - rest
        total = float(np.vdot(flat_a[whole:], flat_b[whole:])) if rest else 0.0
        shape = count, _DOT_BLOCK
        return total + _dot_rows(flat_a[:whole].reshape(shape), flat_b[:whole].reshape(shape))
    return _dot_rows(a, b) if a.ndim > 1 else float(np.vdot(a, b))


def _dot_rows(a: np.ndarray, b: np.ndarray) -> float:
    """The sum over all rows of the dot products of rows, each computed by BLAS through matmul."""
    return float(np.matmul(a[..., None, :], b[..., :, None]).sum(dtype=np.float64))
