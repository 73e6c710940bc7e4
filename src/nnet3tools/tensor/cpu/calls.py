"""Calls as jobs of compiled kernels: of recorded calls, and of calls that run live."""

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
from nnet3tools.tensor.cpu.jobs import CompiledJobs, Work, run_jobs
from nnet3tools.tensor.cpu.kernels import Job, job_maker
from nnet3tools.tensor.cpu.library import library
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
    if isinstance(operator, Element):
        return element_jobs(operator.assignments, operands)
    if isinstance(operator, Aggregate):
        alpha, beta = options.get("alpha", 1.0), options.get("beta", 0.0)
        expr, reduce, axis = operator.expr, operator.reduce, operator.axis
        if axis is not None:
            return aggregate_jobs(expr, reduce, axis, operands[0], operands[1:], alpha, beta)
        if call.result is None:
            return None
        return number_jobs(expr, reduce, call.result.array, operands, alpha)
    maker = job_maker(operator)
    if maker is None and operator.bind_formulas is not None:
        jobs: list[Job] = []
        for part in operator.reference(*operands, **options):
            if (more := _find_jobs(part)) is None:
                return None
            jobs += more
        return jobs
    if operator.name == "dot":
        if call.result is None or operands[0].ndim == 0:
            return None
        return number_jobs(_PRODUCT, "sum", call.result.array, operands, 1.0)
    return None if maker is None else maker(*operands, **options)


class KnownKernels:
    """Compiled kernels for calls that are not replayed: those that earlier runs asked for.

    A kernel that no earlier run has asked for would be compiled by itself. NumPy does such a call,
    and the kernel is made together with all others of its run, as soon as a later run needs one of
    them. Which calls are done by kernels thus depends on the runs in one arena alone, not on what
    the process has compiled or found in its cache, so that results are the same in each process.
    """

    def __init__(self) -> None:
        self._run = 0
        self._asked: dict[str, int] = {}
        """Kernel name -> the run that asked for it first."""
        self._addresses: dict[str, int] = {}
        self._failed = False

    def begin_run(self) -> None:
        """Count a run; kernels that earlier runs asked for may be compiled and used in it."""
        self._run += 1

    def add(self, calls: Iterable[Call]) -> None:
        """Let later runs use these calls' kernels, as if an earlier run had asked for them."""
        for call in calls:
            for job in jobs_of(call) or ():
                self._asked[job.kernel.name] = 0
                library.want([job.kernel])

    def run(self, operator: Any, operands: Sequence[Any], options: Mapping[str, Any]) -> bool:
        """Call an operator by its compiled kernels if an earlier run asked for them; else False."""
        if operator.gives_number or not operator.compiled_when_live:
            return False
        return self.run_call(Call(operator.name, operands, options, operator))

    def run_call(self, call: Call) -> bool:
        """Make a call by compiled kernels and return True, if earlier runs asked for all these."""
        jobs = jobs_of(call)
        return jobs is not None and self.do(jobs)

    def do(self, jobs: Sequence[Job]) -> bool:
        """Run jobs and return True, if earlier runs asked for all their kernels; else False."""
        if any(job.kernel.name not in self._addresses for job in jobs) and not self._make(jobs):
            return False
        run_jobs(jobs, self._addresses)
        return True

    def _make(self, jobs: Sequence[Job]) -> bool:
        """Compile the kernels of jobs and return True if earlier runs asked for all; else False."""
        is_known = not self._failed
        for job in jobs:
            if self._asked.setdefault(job.kernel.name, self._run) == self._run:
                library.want([job.kernel])
                is_known = False
        if not is_known:
            return False
        addresses = library.addresses([job.kernel.name for job in jobs])
        self._addresses.update(addresses or {})
        self._failed = addresses is None
        return not self._failed
