"""Products as jobs of BLAS, by two threads if a product is large.

Each thread makes half of the output's rows or columns. BLAS adds up an element's products in an
order that differs at the edge of a matrix, so one thread and two agree to the last digits only.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from nnet3tools.tensor.cpu.kernels import Job, kernels_of_file, makes_jobs
from nnet3tools.tensor.plain.blas import Gemm, gemm
from nnet3tools.tensor.plain.products import CUT, is_symmetric
from nnet3tools.tensor.strides import is_number

_MULTIPLICATIONS = 32
"""Multiplications that take as long as an element of an elementwise job."""


@makes_jobs("prod")
def product(
    out: Any, a: Any, b: Any, trans_a: bool = False, trans_b: bool = False,
    alpha: Any = 1.0, beta: Any = 0.0,
) -> list[Job] | None:  # fmt: skip
    """A list with one job (BLAS calls) for out = alpha * op(a) op(b) + beta * out, or None.

    op transposes if trans_* is set; two threads do a large product. None for stacks of matrices,
    and if BLAS cannot multiply halves of an operand.
    """
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
    work = found.out.size * found.inner // _MULTIPLICATIONS
    real = "f32" if found.out.dtype == np.float32 else "f64"
    return kernels_of_file(__file__, real, "product.c")["prod"].job(
        -(-max(rows, columns) // CUT), work, gemm=function, is_wide=found.is_wide,
        by_rows=rows >= columns, flip_a=found.flip_a, flip_b=found.flip_b, cut=CUT, rows=rows,
        columns=columns, inner=found.inner, alpha=factor, a=found.a, a_stride=found.stride_a,
        b=found.b, b_stride=found.stride_b, beta=beta, out=found.out,
        out_stride=found.stride_out,
    )  # fmt: skip
