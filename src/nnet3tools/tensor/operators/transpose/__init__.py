"""Copies of an array with its axes in another order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import ALL_TYPES, operator


@operator(types=ALL_TYPES)
def transpose(out: Array, src: Array, axes: Sequence[int]) -> None:
    """Set out to src with axis axes[i] as axis i; both have one type, and do not overlap."""
    out[...] = np.transpose(src, axes)


@operator()
def add_transposed(out: Array, src: Array, axes: Sequence[int]) -> None:
    """Add src with its axes in the given order to out: axis i of out is axis axes[i] of src."""
    out[...] = out + np.transpose(src, axes)
