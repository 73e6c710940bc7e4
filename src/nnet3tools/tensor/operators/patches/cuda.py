"""Patches on CUDA."""

from __future__ import annotations

from typing import Any

from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.function_files import cuda_functions
from nnet3tools.tensor.cuda.indexes import uploaded
from nnet3tools.tensor.cuda.launches import Step
from nnet3tools.tensor.registry import implements

_functions = cuda_functions(__file__)


@implements("gather_patches", "cupy", binder=True)
def bind_gather_patches(out: Array, frames: Array, pieces: Any) -> Step:
    """A callable that runs `gather_patches` with its arguments; `pieces` may be a host array."""
    return _functions["gather_patches"].on_grid(
        out.shape, out=out, frames=frames, pieces=uploaded(pieces)
    )


@implements("add_patches", "cupy", binder=True)
def bind_add_patches(frames: Array, patches: Array, pieces: Any) -> Step:
    """A callable that runs `add_patches` with its arguments; `pieces` may be a host array."""
    return _functions["add_patches"].on_grid(
        frames.shape, frames=frames, patches=patches, pieces=uploaded(pieces),
        places=patches.shape[2],
    )  # fmt: skip
