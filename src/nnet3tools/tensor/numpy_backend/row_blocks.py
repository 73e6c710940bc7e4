"""Operators that work on whole rows: run block by block of rows, on two threads where it pays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nnet3tools.tensor.numpy_backend.calls import split_groups
from nnet3tools.tensor.numpy_backend.threads import TILE_BYTES, Call, register, run_calls

__all__ = ["bind_rows", "block_register", "row_slices"]

Kernel = Callable[..., None]
"""kernel(group, *blocks): works on blocks of rows, with the scratch registers of a group."""


def bind_rows(kernel: Kernel, work_per_element: int, *arrays: np.ndarray) -> Callable[[], None]:
    """Bind a kernel to arrays (..., D_i) with equal leading axes, for all rows.

    Blocks have as many rows as fit a scratch register; a row that does not fit is a block itself.
    """
    matrices = _as_matrices(arrays)
    if matrices is None:
        # stacks that are no view of a matrix: one layer after another
        layers = zip(*arrays, strict=True)
        runs = [bind_rows(kernel, work_per_element, *parts) for parts in layers]
        return functools.partial(_run_each, runs)
    widest = max(matrices, key=lambda m: m.shape[1])
    if not widest.size:
        return functools.partial(_run_each, [])
    columns = widest.shape[1] * widest.itemsize
    rows = list(row_slices(len(widest), max(1, TILE_BYTES // columns)))
    groups: list[list[Call]] = []
    for group, tiles in enumerate(split_groups(rows, work_per_element * widest.size)):
        groups.append([(kernel, (group, *(m[at] for m in matrices))) for at in tiles])
    return functools.partial(run_calls, (), groups)


def row_slices(num_rows: int, size: int) -> Iterator[slice]:
    """All rows, `size` at a time, fewer in the last slice."""
    for start in range(0, num_rows, size):
        yield slice(start, min(start + size, num_rows))


def _run_each(runs: list[Callable[[], None]]) -> None:
    for run in runs:
        run()


def _as_matrices(arrays: tuple[np.ndarray, ...]) -> list[np.ndarray] | None:
    if all(a.ndim == 2 for a in arrays):
        return list(arrays)
    if all(a.ndim == 1 for a in arrays):
        return [a[None, :] for a in arrays]
    if all(a.flags.c_contiguous for a in arrays):
        return [a.reshape(-1, a.shape[-1]) for a in arrays]
    return None


def block_register(group: int, index: int, like: np.ndarray) -> np.ndarray:
    """A scratch block of the shape and type of a block; a new array if no register holds it."""
    size: Any = like.size * like.itemsize
    if size > TILE_BYTES:
        return np.empty(like.shape, like.dtype)
    return register(group, index)[:size].view(like.dtype).reshape(like.shape)
