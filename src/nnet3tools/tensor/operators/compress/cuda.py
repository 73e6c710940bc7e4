"""Compression on CUDA."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.function_files import cuda_functions
from nnet3tools.tensor.cuda.launches import Step
from nnet3tools.tensor.registry import implements

_functions = cuda_functions(__file__)


@implements("compress", "cupy", types=("int8", "uint8", "int16", "uint16"), binder=True)
def bind_compress(out: Array, src: Array, value_range: float) -> Step:
    """A callable that runs `compress`: its kernel scales, rounds, limits, converts each element."""
    info = np.iinfo(out.dtype)
    scale = 0.0 if value_range == 0.0 else info.max / value_range
    return _functions["compress"].on_grid(
        out.shape, out=out, src=src, scale=scale, low=info.min, high=info.max
    )


@implements("decompress", "cupy", binder=True)
def bind_decompress(out: Array, src: Array, value_range: float) -> Step:
    """A callable that runs `decompress`: its kernel converts and scales each element."""
    scale = 1.0 if value_range == 0.0 else value_range / np.iinfo(src.dtype).max
    return _functions["decompress"].on_grid(out.shape, out=out, src=src, scale=scale)
