"""The numerator's forward-backward on the CPU: what its C kernel is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools.tensor.cpu.kernels import Job, kernels_of_file, makes_jobs
from nnet3tools.tensor.operators.numerator import Paths

_kernels = kernels_of_file(__file__)
KERNELS = tuple(_kernels.values())
"""The kernels of this operator."""


@makes_jobs("numerator")
def _numerator(
    results: Any, output: Any, paths: Paths, deriv: Any = None, weight: float = 1.0
) -> list[Job] | None:
    """A list with the job (C kernel call) for `numerator`; None unless contiguous float32."""
    matrices = (output,) if deriv is None else (output, deriv)
    contiguous = all(m.dtype == np.float32 and m.flags.c_contiguous for m in matrices)
    if not contiguous or not output.size or not paths.frames:
        return None
    if any(m.shape != output.shape for m in matrices):
        return None  # the reference raises the error
    distinct, which = paths.distinct_frames()
    columns = {
        name: np.concatenate([getattr(frame, name) for frame in distinct])
        for name in ("sources", "destinations", "cells")
    }
    if any(column.max(initial=0) >= 1 << 31 for column in columns.values()):
        return None
    columns = {name: np.ascontiguousarray(a, np.int32) for name, a in columns.items()}
    columns["costs"] = np.concatenate([frame.costs for frame in distinct], dtype=np.float64)
    counts = np.array([len(frame.sources) for frame in distinct], np.int64)
    integers = {
        name: np.ascontiguousarray(getattr(paths, name), np.int64)
        for name in ("first_states", "first_cells", "starts", "finals", "final_parts")
    }
    states = integers["first_states"]
    most, num_parts = int(np.diff(states).max()), paths.num_parts
    job = _kernels["numerator"].job(
        1, int(counts[which].sum()),
        result=results, output=output, deriv=deriv, num_frames=len(paths.frames),
        num_parts=num_parts, num_finals=len(paths.finals), weight=weight, which=which,
        arc_offsets=np.concatenate([[0], counts.cumsum()]), **integers, **columns,
        final_costs=np.ascontiguousarray(paths.final_costs, np.float64),
        alpha=np.empty(int(states[-1])), beta=np.empty(2 * most),
        terms=np.empty(int(counts.max())), sums=np.empty(max(most, num_parts)),
        factors=np.empty(most), totals=np.empty(num_parts), most_states=most,
    )  # fmt: skip
    return [job]
