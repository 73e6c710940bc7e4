"""Compression on CUDA."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.strided import grid_step
from nnet3tools.tensor.registry import implements

Step = Callable[[], None]


@implements("compress", "cupy", types=("int8", "uint8", "int16", "uint16"), binder=True)
def bind_compress(out: Array, src: Array, value_range: float, truncate: bool = True) -> Step:
    """Scale, round, cut off, convert."""
    info, kind = np.iinfo(out.dtype), src.dtype.type
    body = "out[[r, c]] = (T)nn_max(low, nn_min(high, rint(src[[r, c]] * scale)));"
    if value_range == 0.0:
        body = "out[[r, c]] = (T)nn_max(low, nn_min(high, nn_sgn(src[[r, c]])));"
    scale = 1.0 if value_range == 0.0 else info.max / value_range
    space = {"r": out.shape[0], "c": out.shape[1]}
    return grid_step(
        "compress", space, {"out": out, "src": src}, body,
        scale=kind(scale), low=kind(info.min), high=kind(info.max),
    )  # fmt: skip


@implements("decompress", "cupy", binder=True)
def bind_decompress(out: Array, src: Array, value_range: float) -> Step:
    """Convert and scale."""
    scale = 1.0 if value_range == 0.0 else value_range / np.iinfo(src.dtype).max
    space = {"r": out.shape[0], "c": out.shape[1]}
    body = "out[[r, c]] = src[[r, c]] * scale;"
    return grid_step(
        "decompress", space, {"out": out, "src": src}, body, scale=out.dtype.type(scale)
    )
