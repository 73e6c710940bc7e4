"""Products of quantized rows with integer weights as jobs of C kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.cpu.kernels import Job, has_rows, kernels_of_file, makes_jobs
from nnet3tools.tensor.operators.integer_affine import PackedWeights, levels_of

_kernels = kernels_of_file(__file__)
_ROWS = 8
"""Rows of a step."""
_MULTIPLICATIONS = 96
"""Multiplications that take as long as an element of an elementwise job."""


@makes_jobs("quantize_rows")
def quantize_jobs(out: Any, ranges: Any, src: Any, limits: Any = None) -> list[Job] | None:
    """[job] (C kernel call) for `quantize_rows` of these arrays; None if one is not contiguous."""
    if not (has_rows(src) and out.flags.c_contiguous and ranges.flags.c_contiguous):
        return None
    job = _kernels["quantize_rows"].job(
        len(src), 2 * src.size, out=out, ranges=ranges, src=src, size=src.shape[1],
        src_stride=src.strides[0] // 4, row_bytes=out.strides[0],
        is_wide=out.dtype == np.int16, levels=levels_of(out), limits=limits,
    )  # fmt: skip
    return [job]


@makes_jobs("integer_affine")
def affine_jobs(
    out: Any, rows: Any, ranges: Any, weights: PackedWeights, bias: Any = None,
    starts: Sequence[int] = (0,), stride: int = 1, adds: bool = False, is_plain: bool = False,
) -> list[Job] | None:  # fmt: skip
    """The job (one C kernel call) for `integer_affine`; None unless arrays have contiguous rows.

    The operands are those of the operator. `is_plain`: without vector instructions, for tests.
    """
    if not (has_rows(out) and rows.flags.c_contiguous and ranges.flags.c_contiguous):
        return None
    _check_rows(rows, weights, starts, stride, out)
    job = _kernels["integer_affine"].job(
        -(-len(out) // _ROWS), out.shape[0] * weights.values.size // _MULTIPLICATIONS,
        out=out, rows=rows, ranges=ranges, weights=weights.values, sums=weights.sums,
        scales=weights.scales, bias=bias, starts=np.array(starts, np.int64), parts=len(starts),
        stride=stride, num_rows=len(out), num_outputs=out.shape[1],
        out_stride=out.strides[0] // 4, row_bytes=rows.strides[0],
        is_wide=rows.dtype == np.int16, is_plain=is_plain, adds=adds,
    )  # fmt: skip
    return [job]


def _check_rows(
    rows: Any, weights: PackedWeights, starts: Sequence[int], stride: int, out: Any
) -> None:
    """Raise ProgramError if `integer_affine` with these operands would read outside of them."""
    last = max(starts) + stride * (len(out) - 1)
    shape = len(starts), out.shape[1], weights.row_type
    expected = len(weights.values), len(weights.scales), rows.dtype
    if shape != expected or rows.shape[1] != weights.row_width or last >= len(rows):
        raise ProgramError(f"integer_affine: rows {rows.shape} do not fit {weights.values.shape}")
