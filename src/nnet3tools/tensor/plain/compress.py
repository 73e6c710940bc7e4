"""Compression of matrices on NumPy."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import scratch
from nnet3tools.tensor.registry import implements


@implements("compress", "numpy", types=("int8", "uint8", "int16", "uint16"))
def compress(out: np.ndarray, src: np.ndarray, value_range: float, truncate: bool = True) -> None:
    """Scale, round, cut off, convert."""
    info = np.iinfo(out.dtype)
    if value_range == 0.0 and out.dtype == np.uint8:  # the common case, in one pass
        np.greater(src, 0.0, out=out.view(np.bool_))
        return
    with scratch(src.shape, like=src) as work:
        if value_range == 0.0:
            np.sign(src, out=work)
            np.maximum(work, np.float32(info.min), out=work)
        else:
            np.multiply(src, src.dtype.type(info.max / value_range), out=work)
            np.rint(work, out=work)
            if truncate:
                np.clip(work, info.min, info.max, out=work)
        np.copyto(out, work, casting="unsafe")


@implements("decompress", "numpy")
def decompress(out: np.ndarray, src: np.ndarray, value_range: float) -> None:
    """Convert and scale."""
    if value_range == 0.0:
        np.copyto(out, src)
        return
    scale = value_range / np.iinfo(src.dtype).max
    np.multiply(src, out.dtype.type(scale), out=out, casting="unsafe")
