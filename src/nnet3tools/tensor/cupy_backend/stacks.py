"""Arrays of one shape side by side, so that products of them can be one (products.joined)."""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np

from nnet3tools.tensor.arrays import aligned_bytes
from nnet3tools.tensor.cupy_backend.device import Array, get_device
from nnet3tools.tensor.offsets import ALIGNMENT, rounded_up

__all__ = ["next_of_stack"]

_COUNT = 8
"""Arrays that a stack has room for."""

_stacks: weakref.WeakKeyDictionary[Any, dict[Any, list[Array]]] = weakref.WeakKeyDictionary()


def next_of_stack(shape: tuple[int, ...], dtype: Any, like: Array) -> Array:
    """A new array with undefined contents, beside the latest of this shape and type."""
    dtype = np.dtype(dtype)
    places = _stacks.setdefault(get_device(), {}).setdefault((shape, dtype), [])
    if not places:
        size = math.prod(shape)
        stack = aligned_bytes(_COUNT * rounded_up(size * dtype.itemsize), ALIGNMENT, like)
        rows = stack[: _COUNT * rounded_up(size * dtype.itemsize)].view(dtype).reshape(_COUNT, -1)
        places.extend(rows[i, :size].reshape(shape) for i in reversed(range(_COUNT)))
    return places.pop()
