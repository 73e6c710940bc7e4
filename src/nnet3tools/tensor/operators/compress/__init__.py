"""Matrices kept as small integers between forward and backward computation.

The formats are those of Kaldi's CuCompressedMatrix (cudamatrix/cu-compressed-matrix.h).
"""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array, scratch
from nnet3tools.tensor.registry import operator

__all__ = ["compress", "decompress"]

_TYPES = ("int8", "uint8", "int16", "uint16")


@operator(types=_TYPES)
def compress(out: Array, src: Array, value_range: float, truncate: bool = True) -> None:
    """Round src to multiples of value_range / (largest number of out's type), in out.

    Range 0 keeps the sign alone (0 or 1 in unsigned types). Without `truncate` the caller promises
    that no value is outside the range.
    """
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


@operator()
def decompress(out: Array, src: Array, value_range: float) -> None:
    """The values that `compress` with this range kept in src."""
    if value_range == 0.0:
        np.copyto(out, src)
        return
    scale = value_range / np.iinfo(src.dtype).max
    np.multiply(src, out.dtype.type(scale), out=out, casting="unsafe")
