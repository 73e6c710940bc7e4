"""Blocks of rows, and scratch memory for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnet3tools.tensor.plain.threads import TILE_BYTES, register

__all__ = ["block_register", "row_slices"]


def row_slices(num_rows: int, size: int) -> Iterator[slice]:
    """All rows, `size` at a time, fewer in the last slice."""
    for start in range(0, num_rows, size):
        yield slice(start, min(start + size, num_rows))


def block_register(group: int, index: int, like: np.ndarray) -> np.ndarray:
    """A scratch block of the shape and type of a block; a new array if no register holds it."""
    size: Any = like.size * like.itemsize
    if size > TILE_BYTES:
        return np.empty(like.shape, like.dtype)
    return register(group, index)[:size].view(like.dtype).reshape(like.shape)
