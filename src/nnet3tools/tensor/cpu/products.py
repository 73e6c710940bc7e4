"""Products as jobs: BLAS called from a list of jobs, by two threads if a product is large.

A half of the output's rows or columns each. BLAS adds each element up in its order, which may be
another at the edge of a matrix: results of one thread and of two agree to the last digits only.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from nnet3tools.tensor.cpu.kernels import Job, Kernel, Number
from nnet3tools.tensor.plain.blas import Gemm, gemm
from nnet3tools.tensor.plain.operands import is_number
from nnet3tools.tensor.plain.products import CUT, is_symmetric

__all__ = ["product"]

_MULTIPLICATIONS = 32
"""As many take as long as an element of an elementwise job, by which jobs are shared."""

_BODY = """\
  typedef {size} size;
  typedef void gemm(int, int, int, size, size, size, {real}, const {real} *, size,
                    const {real} *, size, {real}, {real} *, size);
  const int by_rows = w[1].i != 0;
  const i64 rows = w[4].i, columns = w[5].i, all = by_rows ? rows : columns;
  const i64 first = begin * {cut}, last = NN_LEAST(end * {cut}, all);
  const i64 a_down = w[9].i, b_down = w[11].i, out_down = w[14].i;
  const {real} *a = w[8].p, *b = w[10].p;
  {real} *out = w[13].p;
  const f64 alpha = *(const f64 *)w[7].p;
  if (by_rows) {{ a += w[2].i ? first : first * a_down; out += first * out_down; }}
  else {{ b += w[3].i ? first * b_down : first; out += first; }}
  ((gemm *)w[0].p)(101, w[2].i ? 112 : 111, w[3].i ? 112 : 111, by_rows ? last - first : rows,
                   by_rows ? columns : last - first, w[6].i, ({real})alpha, a, a_down, b, b_down,
                   ({real})w[12].f, out, out_down);
"""


@functools.cache
def _kernel(real: str, size: str) -> Kernel:
    return Kernel(_BODY.format(real=real, size=size, cut=CUT))


def product(
    out: Any, a: Any, b: Any, trans_a: bool = False, trans_b: bool = False,
    alpha: Any = 1.0, beta: Any = 0.0,
) -> list[Job] | None:  # fmt: skip
    """The job of a product; None for stacks, and for what BLAS cannot take or halve."""
    if not out.ndim == a.ndim == b.ndim == 2 or not out.dtype == a.dtype == b.dtype:
        return None
    if not isinstance(beta, (int, float)):
        return None
    if not isinstance(alpha, (int, float)) and not is_number(alpha):
        return None
    left, right = a.T if trans_a else a, b.T if trans_b else b
    if not (out.size and left.shape[1]) or is_symmetric(left, right):
        return None
    found = gemm(out, a, b, trans_a, trans_b)
    return None if found is None else [_job(found, alpha, beta)]


def _job(found: Gemm, alpha: Any, beta: float) -> Job:
    rows, columns = found.out.shape
    factor = alpha.array if is_number(alpha) else np.array([alpha], np.float64)
    function = ctypes.cast(found.function, ctypes.c_void_p).value or 0
    arguments = [
        function, rows >= columns, found.flip_a, found.flip_b, rows, columns, found.inner, factor,
        found.a, found.stride_a, found.b, found.stride_b, Number(float(beta)),
        found.out, found.stride_out,
    ]  # fmt: skip
    kernel = _kernel(
        "f32" if found.out.dtype == np.float32 else "f64", "i64" if found.is_wide else "s32"
    )
    work = found.out.size * found.inner // _MULTIPLICATIONS
    return Job(kernel, arguments, -(-max(rows, columns) // CUT), work)
