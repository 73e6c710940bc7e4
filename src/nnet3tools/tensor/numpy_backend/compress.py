"""Compression of matrices on NumPy."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import scratch
from nnet3tools.tensor.registry import implements


@implements("compress", "numpy", types=("int8", "uint8", "int16", "uint16"))
def compress(out: np.ndarray, src: np.ndarray, value_range: float, truncate: bool = True) -> None:
    """Scale, round, cut off, convert."""
    info = np.iinfo(out.dtype)
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
    scale = 1.0 if value_range == 0.0 else value_range / np.iinfo(src.dtype).max
    np.multiply(src, out.dtype.type(scale), out=out, casting="unsafe")
