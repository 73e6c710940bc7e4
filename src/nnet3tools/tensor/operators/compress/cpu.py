"""Compression to signs, which the derivatives of rectified linear units need, as formulas."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools.tensor.cpu.element import element_jobs
from nnet3tools.tensor.cpu.kernels import Job, makes_jobs
from nnet3tools.tensor.element import element

_copy, _is_positive = element("_1 = _2"), element("_1 = _2 > 0")


@makes_jobs("compress")
def _compress(out: Any, src: Any, value_range: Any) -> list[Job] | None:
    if value_range != 0.0 or out.dtype != np.uint8:
        return None
    return element_jobs(_is_positive.assignments, (out.view(np.bool_), src))


@makes_jobs("decompress")
def _decompress(out: Any, src: Any, value_range: Any) -> list[Job] | None:
    if value_range != 0.0 or src.dtype != np.uint8:
        return None
    return element_jobs(_copy.assignments, (out, src.view(np.bool_)))
