"""Patches and windows on NumPy."""

from __future__ import annotations

import numpy as np

from nnet3tools.errors import ProgramError
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


def _windows(b: np.ndarray, num_rows: int, width: int, shift: int) -> np.ndarray:
    """View (num_rows, heads, width, D) of the rows r, r + shift, ... of b."""
    row, head, column = b.strides
    shape = (num_rows, b.shape[1], width, b.shape[2])
    if num_rows + (width - 1) * shift > len(b):
        raise ProgramError(
            f"{num_rows} windows of {width} rows by {shift} do not fit {len(b)} rows"
        )
    return np.lib.stride_tricks.as_strided(b, shape, (row, head, shift * row, column))


@implements("window_dots", "numpy")
def window_dots(
    out: np.ndarray, a: np.ndarray, b: np.ndarray, shift: int, alpha: float = 1.0
) -> None:
    """One sum of products over a view of the windows."""
    np.einsum("rhd,rhkd->rhk", a, _windows(b, len(a), out.shape[2], shift), out=out)
    if alpha != 1.0:
        np.multiply(out, out.dtype.type(alpha), out=out)


@implements("add_weighted_windows", "numpy")
def add_weighted_windows(
    out: np.ndarray, b: np.ndarray, weights: np.ndarray, shift: int, alpha: float = 1.0
) -> None:
    """A sum of products over a view of the windows, by blocks of rows."""
    windows = _windows(b, len(out), weights.shape[2], shift)
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


@implements("add_to_windows", "numpy")
def add_to_windows(
    b: np.ndarray, a: np.ndarray, weights: np.ndarray, shift: int, alpha: float = 1.0
) -> None:
    """One product and addition for each place of the window, by blocks of rows."""
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
