"""Patches of frames, for convolution as one gather and one matrix product.

A frame is (heights, filters). `pieces` (K, 4) says which input height stands at place k of the
patch of output height h: with (begin, end, first, step) = pieces[k] it is first + (h - begin) *
step for begin <= h < end; for other h the place is zero.
"""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator


@operator()
def gather_patches(out: Array, frames: Array, pieces: Array) -> None:
    """Set out (R, H, K, F) to the patches of R frames (R, height_in, F) at H output heights.

    `pieces` (K, 4) are (begin, end, first, step): place k of the patch of height h, for begin
    <= h < end, is input height first + (h - begin) * step; for other h it is zero.
    """
    for k, (begin, end, first, step) in enumerate(pieces.tolist()):
        out[:, :begin, k] = 0.0
        out[:, end:, k] = 0.0
        out[:, begin:end, k] = frames[:, first : first + (end - begin - 1) * step + 1 : step]


@operator(writes=("frames",))
def add_patches(frames: Array, patches: Array, pieces: Array) -> None:
    """Add `patches` (R, H, K, F) to the elements of `frames` that `gather_patches` copies there."""
    for k, (begin, end, first, step) in enumerate(pieces.tolist()):
        target = frames[:, first : first + (end - begin - 1) * step + 1 : step]
        np.add(target, patches[:, begin:end, k], out=target)
