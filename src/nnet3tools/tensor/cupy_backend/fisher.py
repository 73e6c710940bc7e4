"""Online natural gradient's small dense part on CUDA: see tensor/fisher.py.

A block of threads works on one estimate. The symmetric eigenvalue problem is solved by Jacobi's
method in float64: between updates the estimate's directions hardly turn, so that the matrix is
nearly diagonal and a few sweeps do.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.arrays import scratch
from nnet3tools.tensor.cupy_backend.device import Array, get_device, pointer
from nnet3tools.tensor.cupy_backend.indexes import uploaded
from nnet3tools.tensor.cupy_backend.launches import Launch
from nnet3tools.tensor.fisher import DELTA, EPSILON, MAX_CONDITION, ORTHOGONALITY
from nnet3tools.tensor.registry import implements

_THREADS = 256
_MOST_SHARED = 36 << 10
"""Bytes of shared memory for the triangle of a matrix; all of a kernel's must be within 48 KiB."""


@functools.cache
def _source(name: str, rank: int) -> str:
    text = (Path(__file__).parent / f"{name}.cuh").read_text()
    size = rank + rank % 2
    count = size * (size + 1) // 2
    storage = f"__shared__ double z[{count}];"
    if 8 * count > _MOST_SHARED:
        storage = "double* z = (double*)table[7 * blockIdx.x + 6] + size * size;"
    return text.replace("RANK", str(rank)).replace("STORAGE", storage)


def _address(array: Array) -> int:
    """Where an array begins; its kernels know of no strides."""
    if not array.flags.c_contiguous:
        raise ProgramError(f"an array of shape {array.shape} has strides {array.strides}")
    return pointer(array)


def _launch(
    name: str, rank: int, rows: list[list[Array]], factors: list[list[float]], num_read: int
) -> None:
    """One block for each row of a table of addresses, with its factors.

    Of a row's arrays the last `num_read` are read only.
    """
    table = uploaded(np.array([[_address(a) for a in row] for row in rows], np.int64), np.int64)
    numbers = uploaded(np.array(factors, np.float64), np.float64)
    source, kernel = _source(name, rank), f"{name}_{rank}"
    args = np.uint64(pointer(table)), np.uint64(pointer(numbers))
    Launch(
        get_device().kernel(source, kernel), source, kernel, (len(rows), 1, 1), (_THREADS, 1, 1),
        args, [table, numbers, *(a for row in rows for a in row)],
        [a for row in rows for a in row[: len(row) - num_read]],
    )()  # fmt: skip


def _by_rank(arrays: Sequence[Array]) -> dict[int, list[int]]:
    """Rank -> places of the estimates that have it."""
    found: dict[int, list[int]] = {}
    for i, array in enumerate(arrays):
        found.setdefault(len(array), []).append(i)
    return found


@implements("fisher_step", "cupy")
def fisher_step(
    d: Sequence[Array], numbers: Sequence[Array], transform: Sequence[Array],
    coefficients: Sequence[Array], products: Sequence[Array], trace: Sequence[Any],
    settings: Sequence[tuple[float, int, float, int]],
) -> None:  # fmt: skip
    """One kernel a rank; eigenvectors, and a large matrix's triangle, lie in scratch memory."""
    traces = [getattr(number, "array", number) for number in trace]
    operands = list(zip(d, numbers, transform, coefficients, products, traces, strict=True))
    for rank, places in _by_rank(d).items():
        size = rank + rank % 2
        shape = len(places), size * size + size * (size + 1) // 2
        with scratch(shape, like=d[0]) as work:
            rows = [[*operands[i], work[k]] for k, i in enumerate(places)]
            factors = []
            for i in places:
                eta, num_rows, alpha, dim = settings[i]
                limits = MAX_CONDITION, EPSILON, DELTA, 0.0
                factors.append([eta / num_rows, 1.0 - eta, alpha, dim, *limits])
            _launch("fisher_step", rank, rows, factors, num_read=0)


@implements("check_finite", "cupy")
def check_finite(numbers: Array) -> None:
    """Nobody waits: the host looks at the numbers when it logs."""


@implements("orthonormalize", "cupy")
def orthonormalize(
    w: Sequence[Array], d: Sequence[Array], numbers: Sequence[Array], alpha: Sequence[float]
) -> None:
    """A kernel a rank, which does nothing where all is well."""
    for rank, places in _by_rank(w).items():
        rows = [[w[i], d[i], numbers[i]] for i in places]
        factors = [[alpha[i], w[i].shape[1], ORTHOGONALITY] for i in places]
        _launch("orthonormalize", rank, rows, factors, num_read=2)
