"""Recorded calls as jobs of compiled kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nnet3tools.tensor.aggregate import Aggregate
from nnet3tools.tensor.cpu.aggregate import aggregate_jobs, number_jobs
from nnet3tools.tensor.cpu.element import element_jobs
from nnet3tools.tensor.cpu.jobs import Part, Series
from nnet3tools.tensor.cpu.kernels import Job, job_maker
from nnet3tools.tensor.cpu.special import SPECIAL
from nnet3tools.tensor.element import Element
from nnet3tools.tensor.formulas import parse
from nnet3tools.tensor.recording import Call, Origin
from nnet3tools.tensor.registry import Operator, formulas_of

_PRODUCT = parse("_1 * _2")

__all__ = ["part_of", "series"]


def series(calls: Iterable[Call]) -> Series:
    """What does recorded calls in turn."""
    return Series([part_of(call) for call in calls])


def part_of(call: Call) -> Part:
    """A call with its jobs, if there are kernels for it."""
    if call.made is None:
        call.keep_jobs(None if call.origin is None else jobs_of(call.origin))
    assert call.made is not None
    return call.made


def jobs_of(origin: Origin) -> list[Job] | None:
    """What does the work of a call; None if it has to stay with NumPy."""
    operator, operands, options = origin.operator, origin.operands, origin.options
    if isinstance(operator, (Element, Aggregate)):
        return _formula_jobs(operator, operands, options, origin.result)
    if isinstance(operator, Operator) and operator.is_formulas:
        jobs: list[Job] = []
        for formula, bound, how in formulas_of(operator, *operands, **options):
            if (some := _formula_jobs(formula, bound, how)) is None:
                return None
            jobs += some
        return jobs
    if operator.name == "dot":
        return _dot_jobs(operands, origin.result)
    found = SPECIAL.get(operator.name) or job_maker(operator)
    return None if found is None else found(*operands, **options)


def _dot_jobs(operands: Sequence[Any], result: Any) -> list[Job] | None:
    if result is None or operands[0].ndim == 0:
        return None
    return number_jobs(_PRODUCT, "sum", result.array, operands, 1.0)


def _formula_jobs(
    formula: Element | Aggregate, operands: Sequence[Any], options: Mapping[str, Any],
    result: Any = None,
) -> list[Job] | None:  # fmt: skip
    if isinstance(formula, Element):
        return element_jobs(formula.assignments, operands)
    alpha, beta = options.get("alpha", 1.0), options.get("beta", 0.0)
    if formula.axis is None:
        if result is None:
            return None
        return number_jobs(formula.expr, formula.reduce, result.array, operands, alpha)
    out, ins = operands[0], operands[1:]
    return aggregate_jobs(formula.expr, formula.reduce, formula.axis, out, ins, alpha, beta)
