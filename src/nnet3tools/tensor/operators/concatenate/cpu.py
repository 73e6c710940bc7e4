"""Joining and splitting as jobs: an elementwise formula for each part."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools.tensor.cpu.element import element_jobs
from nnet3tools.tensor.cpu.kernels import Job, makes_jobs
from nnet3tools.tensor.element import Element, element
from nnet3tools.tensor.operators.concatenate import pairs_along

_copy, _add = element("_1 = _2"), element("_1 += _2")


def _in_turn(pairs: list[tuple[np.ndarray, np.ndarray]], formula: Element) -> list[Job] | None:
    """Jobs that apply the formula to each (target, source); None if NumPy has to do one of them."""
    jobs: list[Job] = []
    for pair in pairs:
        found = element_jobs(formula.assignments, pair) if pair[0].dtype.kind == "f" else None
        if found is None:
            return None
        jobs += found
    return jobs


@makes_jobs("concatenate")
def _concatenate(out: Any, parts: Any, axis: int) -> list[Job] | None:
    return _in_turn(pairs_along(out, parts, axis), _copy)


@makes_jobs("split")
def _split(src: Any, parts: Any, axis: int) -> list[Job] | None:
    return _in_turn([(part, view) for view, part in pairs_along(src, parts, axis)], _copy)


@makes_jobs("add_split")
def _add_split(src: Any, parts: Any, axis: int) -> list[Job] | None:
    if any(part.dtype != src.dtype for part in parts):
        return None
    return _in_turn([(part, view) for view, part in pairs_along(src, parts, axis)], _add)
