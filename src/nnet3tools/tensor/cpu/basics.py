"""Jobs of the basic operators and of products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.tensor.cpu.element import element_jobs
from nnet3tools.tensor.cpu.kernels import Job
from nnet3tools.tensor.cpu.products import product
from nnet3tools.tensor.element import Element, element
from nnet3tools.tensor.strides import is_number

Jobs = list[Job] | None

_copy, _scale = element("_1 = _2"), element("_1 = _1 * _2")
_add, _subtract, _add_scaled = (
    element("_1 += _2"), element("_1 -= _2"), element("_1 += _2 * _3")
)  # fmt: skip
_add_measured = element("_1 += where(_3 != 0, _2 * _3, 0)")


def _jobs(formula: Element, *operands: Any) -> Jobs:
    return element_jobs(formula.assignments, operands)


def _copied(out: Any, src: Any) -> Jobs:
    return _jobs(_copy, out, src)


def _filled(out: Any, value: Any) -> Jobs:
    return _jobs(_copy, out, value) if out.dtype.kind == "f" else None


def _scaled(out: Any, alpha: Any) -> Jobs:
    return _jobs(_scale, out, alpha)


def _added(out: Any, src: Any, alpha: Any = 1.0) -> Jobs:
    if isinstance(src, np.ndarray) and src.dtype != out.dtype:
        return None
    if is_number(alpha):
        return _jobs(_add_measured, out, src, alpha)
    if alpha == 0.0:
        return []
    if alpha == 1.0:
        return _jobs(_add, out, src)
    return _jobs(_subtract, out, src) if alpha == -1.0 else _jobs(_add_scaled, out, src, alpha)


BASICS: dict[str, Callable[..., Jobs]] = {
    "copy": _copied, "fill": _filled, "scale": _scaled, "add": _added, "prod": product,
}  # fmt: skip
"""Operator -> the function that makes its jobs, or returns None where NumPy has to do the work."""
