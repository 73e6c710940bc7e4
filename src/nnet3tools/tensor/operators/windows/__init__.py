"""Products of rows with a window of other rows, for attention over a few frames.

Row r of an output looks at K rows of the input: r, r + shift, ..., r + (K - 1) * shift, so the
input has R + (K - 1) * shift rows for R output rows. All operands have the heads as their middle
axis; they may be views of wider matrices.
"""

from __future__ import annotations

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.arrays import Array, scratch, strided
from nnet3tools.tensor.registry import operator

_BLOCK = 1 << 16
"""Elements of a temporary that should stay in cache."""


@operator()
def window_dots(out: Array, a: Array, b: Array, shift: int, alpha: float = 1.0) -> None:
    """Set out[r, h, k] to alpha * a[r, h] . b[r + k * shift, h]; a (R, H, D), out (R, H, K)."""
    np.einsum("rhd,rhkd->rhk", a, windows_of(b, len(a), out.shape[2], shift), out=out)
    if alpha != 1.0:
        np.multiply(out, out.dtype.type(alpha), out=out)


@operator()
def add_weighted_windows(
    out: Array, b: Array, weights: Array, shift: int, alpha: float = 1.0
) -> None:
    """Add alpha * sum over k of weights[r, h, k] * b[r + k * shift, h] to out[r, h] (R, H, D)."""
    windows = windows_of(b, len(out), weights.shape[2], shift)
    factor, rows = out.dtype.type(alpha), max(1, _BLOCK // max(1, out[:1].size))
    with scratch((min(rows, len(out)), *out.shape[1:]), like=out) as block:
        for start in range(0, len(out), rows):
            part = slice(start, start + rows)
            target = out[part]
            product = block[: len(target)]
            np.einsum("rhk,rhkd->rhd", weights[part], windows[part], out=product)
            if alpha != 1.0:
                np.multiply(product, factor, out=product)
            np.add(target, product, out=target)


@operator(writes=("b",))
def add_to_windows(b: Array, a: Array, weights: Array, shift: int, alpha: float = 1.0) -> None:
    """Add alpha * weights[r, h, k] * a[r, h] to b[r + k * shift, h] for all k; a (R, H, D)."""
    factor, rows = b.dtype.type(alpha), max(1, _BLOCK // max(1, a[:1].size))
    with scratch((min(rows, len(a)), *a.shape[1:]), like=b) as block:
        for start in range(0, len(a), rows):
            part = a[start : start + rows]
            scaled = weights[start : start + rows] * factor
            product = block[: len(part)]
            for k in range(weights.shape[2]):
                target = b[start + k * shift : start + k * shift + len(part)]
                np.multiply(part, scaled[:, :, k, None], out=product)
                np.add(target, product, out=target)


def windows_of(b: Array, num_rows: int, width: int, shift: int) -> Array:
    """A view (num_rows, heads, width, D) of b: for row r the rows r, r + shift, r + 2 shift, ..."""
    row, head, column = b.strides
    shape = (num_rows, b.shape[1], width, b.shape[2])
    if num_rows + (width - 1) * shift > len(b):
        raise ProgramError(
            f"{num_rows} windows of {width} rows by {shift} do not fit {len(b)} rows"
        )
    return strided(b, shape, (row, head, shift * row, column))
