"""Matrices kept as small integers between forward and backward computation.

The formats are those of Kaldi's CuCompressedMatrix (cudamatrix/cu-compressed-matrix.h).
"""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array, scratch
from nnet3tools.tensor.registry import operator

_TYPES = ("int8", "uint8", "int16", "uint16")


@operator(types=_TYPES)
def compress(out: Array, src: Array, value_range: float) -> None:
    """Set out (integers) to round(src / value_range * (largest number of out's type)), limited.

    With value_range 0 out becomes the sign of src (0 or 1 in unsigned types).
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
            np.clip(work, info.min, info.max, out=work)
        np.copyto(out, work, casting="unsafe")


@operator()
def decompress(out: Array, src: Array, value_range: float) -> None:
    """Set out to the values that `compress`, called with the same value_range, stored in src."""
    if value_range == 0.0:
        np.copyto(out, src)
        return
    scale = value_range / np.iinfo(src.dtype).max
    np.multiply(src, out.dtype.type(scale), out=out, casting="unsafe")
