"""Recorded calls as jobs of compiled kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any
from weakref import WeakKeyDictionary

from nnet3tools.tensor.aggregate import Aggregate
from nnet3tools.tensor.call import Call, in_turn
from nnet3tools.tensor.cpu import products  # noqa: F401 (it registers its jobs)
from nnet3tools.tensor.cpu.aggregate import aggregate_jobs, number_jobs
from nnet3tools.tensor.cpu.element import element_jobs
from nnet3tools.tensor.cpu.jobs import CompiledJobs, Work
from nnet3tools.tensor.cpu.kernels import Job, job_maker
from nnet3tools.tensor.element import Element
from nnet3tools.tensor.formulas import parse

_PRODUCT = parse("_1 * _2")


def compiled_steps(calls: Iterable[tuple[int, Call]]) -> Iterator[tuple[int, Work]]:
    """Yield (command number, callable); neighbours with kernels join under the first number."""
    for has_jobs, group in groupby(calls, lambda pair: jobs_of(pair[1]) is not None):
        if has_jobs:
            commands, members = zip(*group, strict=True)
            jobs = [job for call in members for job in jobs_of(call) or ()]
            yield commands[0], CompiledJobs(jobs, partial(_bound_in_turn, members))
        else:
            yield from ((c, call.bind()) for c, call in group)


def _bound_in_turn(calls: Sequence[Call]) -> Work:
    return in_turn(call.bind() for call in calls)


def jobs_of(call: Call) -> Sequence[Job] | None:
    """The jobs (compiled kernels with arguments) that make a call; None if NumPy has to make it."""
    if call not in _jobs:
        _jobs[call] = None if call.operator is None else _find_jobs(call)
    return _jobs[call]


_jobs: WeakKeyDictionary[Call, Sequence[Job] | None] = WeakKeyDictionary()


def _find_jobs(call: Call) -> Sequence[Job] | None:
    operator, operands, options = call.operator, call.operands, call.options
    if isinstance(operator, (Element, Aggregate)):
        return _formula_jobs(operator, operands, options, call.result)
    maker = job_maker(operator)
    if maker is None and operator.bind_formulas is not None:
        jobs: list[Job] = []
        for part in operator.reference(*operands, **options):
            if (more := _find_jobs(part)) is None:
                return None
            jobs += more
        return jobs
    if operator.name == "dot":
        return _dot_jobs(operands, call.result)
    return None if maker is None else maker(*operands, **options)


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
