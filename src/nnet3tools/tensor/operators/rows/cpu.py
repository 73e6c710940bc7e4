"""Moves of rows as jobs of C kernels: the addresses of rows are looked up when a call is bound."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.addresses import address, overlap
from nnet3tools.tensor.cpu.kernels import FileKernel, Job, kernels_of_file, makes_jobs
from nnet3tools.tensor.operators.rows import checked_places

_TYPES = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}


def _kernel(name: str, dtype: np.dtype) -> FileKernel:
    return kernels_of_file(__file__, _TYPES[dtype])[name]


def _can_move(matrix: Any, others: Sequence[Any]) -> bool:
    """Whether kernels can move rows: contiguous, of one type and width, and no shared memory."""
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or matrix.dtype not in _TYPES:
        return False
    for other in others:
        alike = isinstance(other, np.ndarray) and other.ndim == 2 and other.dtype == matrix.dtype
        if not alike or other.shape[1] != matrix.shape[1] or overlap(matrix, other):
            return False
    every = [matrix, *others]
    return all(m.strides[1] == m.itemsize and m.strides[0] % m.itemsize == 0 for m in every)


def _places(matrices: Sequence[np.ndarray], which: Any, rows: Any) -> np.ndarray:
    """The address of row rows[i] of matrices[which[i]], for each i; 0 where `which` is negative."""
    number, row = checked_places(which, rows, matrices, len(which))
    base = np.array([address(m) for m in matrices], np.int64)
    down = np.array([m.strides[0] for m in matrices], np.int64)
    at = np.maximum(number, 0)
    return np.where(number >= 0, base[at] + row * down[at], 0)


def _jobs(
    kernel: str, matrix: np.ndarray, others: Sequence[np.ndarray], which: Any, rows: Any,
    alpha: Any = 1.0,
) -> list[Job] | None:  # fmt: skip
    """[job] (C kernel call) to copy or add between row i of `matrix` and row rows[i] of a part.

    The part is others[which[i]]. `kernel`: "copy_rows", "add_rows" write `matrix`; "copy_to_rows",
    "add_to_rows" write the others. None if NumPy has to do it.
    """
    if not isinstance(alpha, (int, float)) or not _can_move(matrix, others):
        return None
    if len(matrix) != len(rows) or not matrix.size or not others:
        return None
    # several rows may be added to one: the job is left to one thread
    work = 0 if kernel == "add_to_rows" else 2 * matrix.size
    job = _kernel(kernel, matrix.dtype).job(
        len(matrix), work, matrix=matrix, rows=_places(others, which, rows),
        size=matrix.shape[1], stride=matrix.strides[0] // matrix.itemsize, alpha=alpha,
    )  # fmt: skip
    job.alive += others
    return [job]


for _name in ("copy_rows", "add_rows", "copy_to_rows", "add_to_rows"):
    makes_jobs(f"{_name}_multi")(partial(_jobs, _name))


@makes_jobs("add_row_ranges")
def _add_row_ranges(out: Any, src: Any, ranges: Any, alpha: Any = 1.0) -> list[Job] | None:
    given = np.ascontiguousarray(ranges, np.int32).reshape(-1, 2)
    if not isinstance(alpha, (int, float)) or not _can_move(out, [src]) or len(given) != len(out):
        return None
    used = given[:, 1] > given[:, 0]
    if not used.any() or not out.size:
        return None
    if given[used].min() < 0 or given[used].max() > len(src):
        raise ProgramError(f"a range of rows exceeds a matrix of {len(src)} rows")
    work = int((given[used, 1] - given[used, 0]).sum()) * out.shape[1]
    job = _kernel("add_row_ranges", out.dtype).job(
        len(out), work, out=out, src=src, ranges=given, size=out.shape[1],
        out_stride=out.strides[0] // out.itemsize, src_stride=src.strides[0] // src.itemsize,
        alpha=alpha,
    )  # fmt: skip
    return [job]
