"""Joining and splitting as jobs: an elementwise formula for each part."""

from __future__ import annotations

from functools import partial
from typing import Any

from nnet3tools.tensor.cpu.element import element_jobs
from nnet3tools.tensor.cpu.kernels import Job, makes_jobs
from nnet3tools.tensor.element import Element, element
from nnet3tools.tensor.operators.concatenate import pairs_along

_copy, _add = element("_1 = _2"), element("_1 += _2")


def _jobs(formula: Element, to_parts: bool, whole: Any, parts: Any, axis: int) -> list[Job] | None:
    """Jobs that copy or add between parts and their sections of `whole` along an axis.

    With `to_parts` the parts are the targets, else the sections. `formula` has the operands
    target and source. None if NumPy has to do it.
    """
    if formula is _add and any(part.dtype != whole.dtype for part in parts):
        return None
    jobs: list[Job] = []
    for view, part in pairs_along(whole, parts, axis):
        target, source = (part, view) if to_parts else (view, part)
        floats = target.dtype.kind == "f"
        found = element_jobs(formula.assignments, (target, source)) if floats else None
        if found is None:
            return None
        jobs += found
    return jobs


makes_jobs("concatenate")(partial(_jobs, _copy, False))
makes_jobs("split")(partial(_jobs, _copy, True))
makes_jobs("add_split")(partial(_jobs, _add, True))
