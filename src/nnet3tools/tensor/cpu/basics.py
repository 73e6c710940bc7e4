"""Jobs of the basic operators; products are in products.py."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from nnet3tools.tensor.cpu.element import element_jobs
from nnet3tools.tensor.cpu.kernels import Job, makes_jobs
from nnet3tools.tensor.element import Element, element
from nnet3tools.tensor.strides import is_number

_copy, _scale = element("_1 = _2"), element("_1 = _1 * _2")
_add, _subtract, _add_scaled = (
    element("_1 += _2"), element("_1 -= _2"), element("_1 += _2 * _3")
)  # fmt: skip
_add_measured = element("_1 += where(_3 != 0, _2 * _3, 0)")


def _jobs(formula: Element, *operands: Any) -> list[Job] | None:
    return element_jobs(formula.assignments, operands)


makes_jobs("copy")(partial(_jobs, _copy))
makes_jobs("scale")(partial(_jobs, _scale))


@makes_jobs("fill")
def _filled(out: Any, value: Any) -> list[Job] | None:
    return _jobs(_copy, out, value) if out.dtype.kind == "f" else None


@makes_jobs("add")
def _added(out: Any, src: Any, alpha: Any = 1.0) -> list[Job] | None:
    if isinstance(src, np.ndarray) and src.dtype != out.dtype:
        return None
    if is_number(alpha):
        return _jobs(_add_measured, out, src, alpha)
    if alpha == 0.0:
        return []
    if alpha == 1.0:
        return _jobs(_add, out, src)
    return _jobs(_subtract, out, src) if alpha == -1.0 else _jobs(_add_scaled, out, src, alpha)
