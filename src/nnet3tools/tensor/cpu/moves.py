"""Moves of rows as C: kernels that take the address of a row for each row of a matrix.

Addresses are looked up when a call is bound, so one kernel copies from one matrix or from many.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.cpu.kernels import Job, Kernel, Number
from nnet3tools.tensor.plain.addresses import address
from nnet3tools.tensor.plain.operands import overlap

__all__ = ["MOVES"]

_TYPES = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}

_COPY = """\
  u8 *const out = w[0].p; const i64 *const from = w[1].p; const i64 size = w[2].i, down = w[3].i;
  for (i64 i = begin; i < end; ++i) {
    if (from[i]) memcpy(out + i * down, (const void *)from[i], size);
    else memset(out + i * down, 0, size);
  }
"""
_SCATTER = """\
  const u8 *const src = w[0].p; const i64 *const to = w[1].p;
  const i64 size = w[2].i, down = w[3].i;
  for (i64 i = begin; i < end; ++i) {
    if (to[i]) memcpy((void *)to[i], src + i * down, size);
  }
"""
_ADD = """\
  {t} *const out = w[0].p; const i64 *const from = w[1].p;
  const i64 size = w[2].i, down = w[3].i; const {t} alpha = ({t})w[4].f;
  for (i64 i = begin; i < end; ++i) {{
    const {t} *const row = (const {t} *)from[i];
    {t} *const q = out + i * down;
    if (!row) continue;
    #pragma omp simd
    for (i64 k = 0; k < size; ++k) q[k] += alpha * row[k];
  }}
"""
_ADD_TO = """\
  const {t} *const src = w[0].p; const i64 *const to = w[1].p;
  const i64 size = w[2].i, down = w[3].i; const {t} alpha = ({t})w[4].f;
  for (i64 i = begin; i < end; ++i) {{
    {t} *const row = ({t} *)to[i];
    const {t} *const q = src + i * down;
    if (!row) continue;
    #pragma omp simd
    for (i64 k = 0; k < size; ++k) row[k] += alpha * q[k];
  }}
"""
_RANGES = """\
  {t} *const out = w[0].p; const {t} *const src = w[1].p; const s32 *const ranges = w[2].p;
  const i64 size = w[3].i, down = w[4].i, src_down = w[5].i; const {t} alpha = ({t})w[6].f;
  for (i64 i = begin; i < end; ++i) {{
    const i64 first = ranges[2 * i], last = ranges[2 * i + 1];
    if (last <= first) continue;
    for (i64 g = 0; g < size; g += 256) {{
      const i64 width = NN_LEAST(256, size - g);
      f64 all[256];
      for (i64 k = 0; k < width; ++k) all[k] = 0;
      for (i64 r0 = first; r0 < last; r0 += 64) {{
        {t} part[256];
        for (i64 k = 0; k < width; ++k) part[k] = 0;
        for (i64 r = r0; r < NN_LEAST(r0 + 64, last); ++r) {{
          const {t} *const q = src + r * src_down + g;
          #pragma omp simd
          for (i64 k = 0; k < width; ++k) part[k] += q[k];
        }}
        #pragma omp simd
        for (i64 k = 0; k < width; ++k) all[k] += part[k];
      }}
      {t} *const q = out + i * down + g;
      #pragma omp simd
      for (i64 k = 0; k < width; ++k) q[k] += alpha * ({t})all[k];
    }}
  }}
"""


@functools.cache
def _kernel(text: str, dtype: np.dtype | None) -> Kernel:
    """The kernel of a text, for elements of a type where that matters."""
    return Kernel(text if dtype is None else text.format(t=_TYPES[dtype]))


def _can_move(matrix: Any, others: Sequence[Any]) -> bool:
    """Whether rows are contiguous, of one type and width, and the matrices apart."""
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or matrix.dtype not in _TYPES:
        return False
    for other in others:
        alike = isinstance(other, np.ndarray) and other.ndim == 2 and other.dtype == matrix.dtype
        if not alike or other.shape[1] != matrix.shape[1] or overlap(matrix, other):
            return False
    every = [matrix, *others]
    return all(m.strides[1] == m.itemsize and m.strides[0] % m.itemsize == 0 for m in every)


def _places(matrices: Sequence[np.ndarray], which: Any, rows: Any) -> np.ndarray:
    """The addresses of rows; 0 where `which` is negative."""
    number, row = np.asarray(which, np.int64), np.asarray(rows, np.int64)
    sizes = np.array([len(m) for m in matrices], np.int64)
    used = number >= 0
    if used.any():
        wanted = row[used]
        if wanted.min() < 0 or (wanted >= sizes[number[used]]).any():
            raise ProgramError("a row operation asks for a row that a matrix has not")
    base = np.array([address(m) for m in matrices], np.int64)
    down = np.array([m.strides[0] for m in matrices], np.int64)
    at = np.where(used, number, 0)
    return np.where(used, base[at] + row * down[at], 0)


def _job(
    text: str, matrix: np.ndarray, others: Sequence[np.ndarray], which: Any, rows: Any,
    alpha: float | None, in_order: bool = False,
) -> list[Job] | None:  # fmt: skip
    """The job of a kernel that takes a matrix and the addresses of other rows."""
    if not _can_move(matrix, others) or len(matrix) != len(rows):
        return None
    if not matrix.size or not others:
        return None
    places = _places(others, which, rows)
    item = matrix.itemsize if alpha is None else 1
    kernel = _kernel(text, None if alpha is None else matrix.dtype)
    down = matrix.strides[0] // (matrix.itemsize // item)
    values = [matrix, places, matrix.shape[1] * item, down]
    if alpha is not None:
        values.append(Number(float(alpha)))
    job = Job(kernel, values, len(matrix), 2 * matrix.size)
    job.alive += others
    job.in_order = in_order
    return [job]


def _one(indexes: Any) -> np.ndarray:
    return np.where(np.asarray(indexes) >= 0, 0, -1)


def _copy_rows(out: Any, src: Any, indexes: Any) -> list[Job] | None:
    return _job(_COPY, out, [src], _one(indexes), indexes, None)


def _add_rows(out: Any, src: Any, indexes: Any, alpha: Any = 1.0) -> list[Job] | None:
    return _add_rows_multi(out, [src], _one(indexes), indexes, alpha)


def _copy_rows_multi(out: Any, sources: Any, which: Any, rows: Any) -> list[Job] | None:
    return _job(_COPY, out, sources, which, rows, None)


def _add_rows_multi(
    out: Any, sources: Any, which: Any, rows: Any, alpha: Any = 1.0
) -> list[Job] | None:
    if not isinstance(alpha, (int, float)):
        return None
    return _job(_ADD, out, sources, which, rows, alpha)


def _copy_to_rows_multi(src: Any, dests: Any, which: Any, rows: Any) -> list[Job] | None:
    return _job(_SCATTER, src, dests, which, rows, None)


def _add_to_rows_multi(
    src: Any, dests: Any, which: Any, rows: Any, alpha: Any = 1.0
) -> list[Job] | None:
    if not isinstance(alpha, (int, float)):
        return None
    return _job(_ADD_TO, src, dests, which, rows, alpha, in_order=True)


def _add_row_ranges(out: Any, src: Any, ranges: Any, alpha: Any = 1.0) -> list[Job] | None:
    given = np.ascontiguousarray(ranges, np.int32).reshape(-1, 2)
    if not isinstance(alpha, (int, float)) or not _can_move(out, [src]) or len(given) != len(out):
        return None
    used = given[:, 1] > given[:, 0]
    if not used.any() or not out.size:
        return None
    if given[used].min() < 0 or given[used].max() > len(src):
        raise ProgramError(f"a range of rows exceeds a matrix of {len(src)} rows")
    kernel = _kernel(_RANGES, out.dtype)
    downs = [m.strides[0] // m.itemsize for m in (out, src)]
    values = [out, src, given, out.shape[1], *downs, Number(float(alpha))]
    work = int((given[used, 1] - given[used, 0]).sum()) * out.shape[1]
    return [Job(kernel, values, len(out), work)]


MOVES: dict[str, Callable[..., list[Job] | None]] = {
    "copy_rows": _copy_rows, "add_rows": _add_rows, "copy_rows_multi": _copy_rows_multi,
    "add_rows_multi": _add_rows_multi, "copy_to_rows_multi": _copy_to_rows_multi,
    "add_to_rows_multi": _add_to_rows_multi, "add_row_ranges": _add_row_ranges,
}  # fmt: skip
"""Operator -> its jobs, or None where that is left to NumPy."""
