"""Online natural gradient's small dense part on CUDA: see tensor/fisher.py.

Each kernel works on all estimates at once; a block of threads on one, on a tile of its products or
on some of its columns. The symmetric eigenvalue problem is solved by Jacobi's method in float64:
between updates the estimate's directions hardly turn, so that the matrix is nearly diagonal and a
few sweeps do.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.arrays import scratch
from nnet3tools.tensor.cupy_backend.device import Array, get_device, pointer
from nnet3tools.tensor.cupy_backend.indexes import uploaded
from nnet3tools.tensor.cupy_backend.launches import Launch
from nnet3tools.tensor.cupy_backend.operands import element_strides
from nnet3tools.tensor.fisher import DELTA, EPSILON, MAX_CONDITION, ORTHOGONALITY
from nnet3tools.tensor.registry import implements

_THREADS = 256
_TILE = 32
"""Rows and columns of a product that a block makes."""
_MOST_COLUMNS, _COLUMN_BYTES = 32, 40 << 10
"""Columns of a new estimate that a block makes, and their shared memory."""
_MOST_WARPS = 32


@functools.cache
def _source(name: str, **words: int) -> tuple[str, str]:
    """Source and name of the kernel in a file, in which some words stand for numbers."""
    text = (Path(__file__).parent / f"{name}.cuh").read_text()
    for word, number in words.items():
        text = text.replace(word, str(number))
    return text, "_".join([name, *map(str, words.values())])


def _rows(array: Array) -> tuple[int, int]:
    """Where a matrix begins, and elements from row to row; its rows have no gaps."""
    rows, columns = element_strides(array)
    if columns != 1 and array.shape[1] != 1:
        raise ProgramError(f"an array of shape {array.shape} has strides {array.strides}")
    return pointer(array), rows


def _address(array: Array) -> int:
    """Where an array begins that has no gaps."""
    if not array.flags.c_contiguous:
        raise ProgramError(f"an array of shape {array.shape} has strides {array.strides}")
    return pointer(array)


def _numbers(rows: Sequence[Sequence[Any]], dtype: Any) -> Array:
    return uploaded(np.array(rows, dtype), dtype)


def _launch(
    kernel: tuple[str, str], grid: tuple[int, int], threads: int, tables: Sequence[Array],
    reads: Iterable[Array], writes: Iterable[Array], shared_bytes: int = 0,
) -> None:  # fmt: skip
    """A kernel whose arguments are tables of addresses and numbers."""
    written = list(writes)
    Launch(
        get_device().kernel(*kernel, shared_bytes), *kernel, (*grid, 1), (threads, 1, 1),
        [np.uint64(pointer(table)) for table in tables], [*tables, *reads, *written], written,
    )()  # fmt: skip


@implements("fisher_products", "cupy")
def fisher_products(products: Sequence[Array], j: Sequence[Array], w: Sequence[Array]) -> None:
    """In float32, whatever --gpu-math says; sums of a tile's elements are in order."""
    rows, tiles = [], 1
    for out, one, other in zip(products, j, w, strict=True):
        (at_j, pitch_j), (at_w, pitch_w) = _rows(one), _rows(other)
        rows.append([_address(out), at_j, at_w, *one.shape, pitch_j, pitch_w])
        tiles = max(tiles, -(-2 * len(one) // _TILE) * -(-len(one) // _TILE))
    kernel, tables = _source("fisher_products"), [_numbers(rows, np.int64)]
    _launch(kernel, (tiles, len(rows)), _THREADS, tables, [*j, *w], products)


@implements("fisher_replace", "cupy")
def fisher_replace(
    w: Sequence[Array], j: Sequence[Array], transform: Sequence[Array],
    coefficients: Sequence[Array],
) -> None:  # fmt: skip
    """In float32; a column of the new estimate depends on that column of the old one only."""
    rows = []
    for new, one, factors, numbers in zip(w, j, transform, coefficients, strict=True):
        (at_w, pitch_w), (at_j, pitch_j) = _rows(new), _rows(one)
        rows.append(
            [at_w, at_j, _address(factors), _address(numbers), *new.shape, pitch_w, pitch_j]
        )
    rank, dim = max(len(one) for one in w), max(one.shape[1] for one in w)
    columns = _MOST_COLUMNS
    while columns > 1 and 4 * rank * columns > _COLUMN_BYTES:
        columns //= 2
    kernel = _source("fisher_replace", COLUMNS=columns)
    grid = -(-dim // columns), len(rows)
    tables, reads = [_numbers(rows, np.int64)], [*j, *transform, *coefficients]
    _launch(kernel, grid, _THREADS, tables, reads, w, 4 * rank * columns)


@implements("fisher_step", "cupy")
def fisher_step(
    d: Sequence[Array], numbers: Sequence[Array], transform: Sequence[Array],
    coefficients: Sequence[Array], products: Sequence[Array], trace: Sequence[Any],
    settings: Sequence[tuple[float, int, float, int]],
) -> None:  # fmt: skip
    """Eigenvectors and the triangle of the matrix lie in shared memory if a block may have that."""
    traces = [getattr(number, "array", number) for number in trace]
    rank = max(map(len, d))
    size = rank + rank % 2
    count = size * size + size * (size + 1) // 2
    is_shared = 8 * (count + _SMALL_ARRAYS * size) <= get_device().most_shared_bytes
    shape = len(d), 1 if is_shared else count
    with scratch(shape, like=d[0]) as work:
        rows, factors = [], []
        operands = zip(d, numbers, transform, coefficients, products, traces, work, strict=True)
        for arrays, (eta, num_rows, alpha, dim) in zip(operands, settings, strict=True):
            rows.append([len(arrays[0]), *map(_address, arrays)])
            limits = MAX_CONDITION, EPSILON, DELTA, 0.0
            factors.append([eta / num_rows, 1.0 - eta, alpha, dim, *limits])
        tables = [_numbers(rows, np.int64), _numbers(factors, np.float64)]
        text, name = _source("fisher_step", MOST=rank, SHARED=int(is_shared))
        writes = [*d, *numbers, *transform, *coefficients, *([] if is_shared else [work])]
        threads = 32 * _warps(size // 2)
        kernel = text.replace("THREADS", str(threads)), name
        shared_bytes = 8 * count if is_shared else 0
        _launch(kernel, (len(rows), 1), threads, tables, [*products, *traces], writes, shared_bytes)


_SMALL_ARRAYS = 9
"""At most so many float64 a row of the matrix are in shared memory besides."""


def _warps(rows: int) -> int:
    """As many as share so many rows out evenly."""
    turns = -(-rows // _MOST_WARPS)
    return -(-rows // turns)


@implements("check_finite", "cupy")
def check_finite(numbers: Array) -> None:
    """Nobody waits: the host looks at the numbers when it logs."""


@implements("orthonormalize", "cupy")
def orthonormalize(
    w: Sequence[Array], d: Sequence[Array], numbers: Sequence[Array], alpha: Sequence[float]
) -> None:
    """A kernel that does nothing where all is well."""
    rows, factors = [], []
    for one, of_one, state, a in zip(w, d, numbers, alpha, strict=True):
        at, pitch = _rows(one)
        rows.append([at, _address(of_one), _address(state), len(one), pitch])
        factors.append([a, one.shape[1], ORTHOGONALITY])
    tables = [_numbers(rows, np.int64), _numbers(factors, np.float64)]
    kernel = _source("orthonormalize", MOST=max(map(len, w)))
    _launch(kernel, (len(rows), 1), _THREADS, tables, [*d, *numbers], w)
