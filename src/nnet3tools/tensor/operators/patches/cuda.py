"""Patches on CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.indexes import uploaded
from nnet3tools.tensor.cuda.strided import grid_step
from nnet3tools.tensor.registry import implements

Step = Callable[[], None]


@implements("gather_patches", "cupy", binder=True)
def bind_gather_patches(out: Array, frames: Array, pieces: Any) -> Step:
    """One thread an element of the patches."""
    arrays = {"out": out, "frames": frames, "pieces": uploaded(pieces)}
    body = """
      const long long begin = pieces[[k, 0]], end = pieces[[k, 1]];
      const long long from = pieces[[k, 2]] + (h - begin) * pieces[[k, 3]];
      out[[r, h, k, f]] = h >= begin && h < end ? frames[[r, from, f]] : T(0);"""
    space = dict(zip("rhkf", out.shape, strict=True))
    return grid_step("gather_patches", space, arrays, body)


@implements("add_patches", "cupy", binder=True)
def bind_add_patches(frames: Array, patches: Array, pieces: Any) -> Step:
    """One thread an element of the frames, which sums what was gathered from it, in order."""
    arrays = {"frames": frames, "patches": patches, "pieces": uploaded(pieces)}
    body = """
      T sum = 0;
      for (long long k = 0; k < places; ++k) {
        const long long begin = pieces[[k, 0]], gap = g - pieces[[k, 2]], step = pieces[[k, 3]];
        const long long h = begin + gap / step;
        if (gap % step == 0 && h >= begin && h < pieces[[k, 1]]) sum += patches[[r, h, k, f]];
      }
      frames[[r, g, f]] += sum;"""
    space = dict(zip("rgf", frames.shape, strict=True))
    return grid_step("add_patches", space, arrays, body, places=np.int64(patches.shape[2]))
