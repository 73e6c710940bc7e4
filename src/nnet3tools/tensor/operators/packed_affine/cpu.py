"""Affine maps of a few rows as jobs of a C kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.cpu.kernels import Job, has_rows, kernels_of_file, makes_jobs
from nnet3tools.tensor.operators.packed_affine import PANEL

_kernels = kernels_of_file(__file__)
_MULTIPLICATIONS = 32
"""Multiplications that take as long as an element of an elementwise job."""


@makes_jobs("packed_affine")
def affine_jobs(
    out: Any, rows: Any, weights: Any, bias: Any = None,
    starts: Sequence[int] = (0,), stride: int = 1, adds: bool = False,
) -> list[Job] | None:  # fmt: skip
    """A list with the job (C kernel call) for `packed_affine`; None if rows are not contiguous."""
    if not (has_rows(out) and has_rows(rows)):
        return None
    last, panels = max(starts) + stride * (len(out) - 1), -(-out.shape[1] // PANEL)
    if weights.shape != (len(starts), panels, rows.shape[1], PANEL) or last >= len(rows):
        raise ProgramError(f"packed_affine: rows {rows.shape} do not fit {weights.shape}")
    job = _kernels["packed_affine"].job(
        panels, len(out) * weights.size // _MULTIPLICATIONS,
        out=out, rows=rows, weights=weights, bias=bias, starts=np.array(starts, np.int64),
        parts=len(starts), stride=stride, num_rows=len(out), num_outputs=out.shape[1],
        columns=rows.shape[1], out_stride=out.strides[0] // 4, row_stride=rows.strides[0] // 4,
        adds=adds,
    )  # fmt: skip
    return [job]
