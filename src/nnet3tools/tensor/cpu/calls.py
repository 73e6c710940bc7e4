"""Calls as jobs of compiled kernels: of recorded calls, and of calls that run live."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from nnet3tools.tensor.aggregate import Aggregate
from nnet3tools.tensor.call import Call, in_turn
from nnet3tools.tensor.cpu.aggregate import aggregate_jobs, number_jobs
from nnet3tools.tensor.cpu.element import element_jobs
from nnet3tools.tensor.cpu.jobs import CompiledJobs, Work, bound_jobs
from nnet3tools.tensor.cpu.kernels import Job, job_maker, kernels_of_file, makes_jobs
from nnet3tools.tensor.cpu.library import library
from nnet3tools.tensor.element import Element
from nnet3tools.tensor.formulas import parse
from nnet3tools.tensor.operands import is_number
from nnet3tools.tensor.plain.blas import Gemm, gemm
from nnet3tools.tensor.plain.products import is_symmetric, rows_of_step

_PRODUCT = parse("_1 * _2")


def compiled_steps(calls: Iterable[tuple[int, Call]]) -> Iterator[tuple[int, Work]]:
    """Yield (command number, callable) for calls in order.

    Successive calls that have compiled kernels become one callable, with the first one's number.
    """
    found = ((c, call, jobs_of(call)) for c, call in calls)
    for has_jobs, group in groupby(found, lambda each: each[2] is not None):
        if has_jobs:
            commands, members, lists = zip(*group, strict=True)
            jobs = [job for each in lists for job in each]
            yield (
                commands[0],
                CompiledJobs(jobs, partial(in_turn, (call.bind() for call in members))),
            )
        else:
            yield from ((c, call.bind()) for c, call, _ in group)


def jobs_of(call: Call) -> Sequence[Job] | None:
    """The jobs (compiled kernels with arguments) that make a call; None if NumPy has to make it."""
    if call.operator is None:
        return None
    if (found := _jobs.get(call, _UNKNOWN)) is _UNKNOWN:
        found = _find_jobs(call.operator, call.operands, call.options, call.result)
        _jobs[call] = found
    return found


_UNKNOWN: Sequence[Job] = ()
_jobs: WeakKeyDictionary[Call, Sequence[Job] | None] = WeakKeyDictionary()


def _find_jobs(
    operator: Any, operands: Sequence[Any], options: Mapping[str, Any], result: Any = None
) -> Sequence[Job] | None:
    """`jobs_of` a Call with these attributes."""
    if isinstance(operator, Element):
        return element_jobs(operator.assignments, operands)
    if isinstance(operator, Aggregate):
        alpha, beta = options.get("alpha", 1.0), options.get("beta", 0.0)
        expr, reduce, axis = operator.expr, operator.reduce, operator.axis
        if axis is not None:
            return aggregate_jobs(expr, reduce, axis, operands[0], operands[1:], alpha, beta)
        if result is None:
            return None
        return number_jobs(expr, reduce, result.array, operands, alpha)
    maker = job_maker(operator)
    if maker is None and operator.bind_formulas is not None:
        jobs: list[Job] = []
        for part in operator.reference(*operands, **options):
            if (more := _find_jobs(part.operator, part.operands, part.options)) is None:
                return None
            jobs += more
        return jobs
    if operator.name == "dot":
        if result is None or operands[0].ndim == 0:
            return None
        return number_jobs(_PRODUCT, "sum", result.array, operands, 1.0)
    return None if maker is None else maker(*operands, **options)


_MULTIPLICATIONS = 32
"""Multiplications that take as long as an element of an elementwise job."""


@makes_jobs("prod")
def product(
    out: Any, a: Any, b: Any, trans_a: bool = False, trans_b: bool = False,
    alpha: Any = 1.0, beta: Any = 0.0,
) -> list[Job] | None:  # fmt: skip
    """A list with one job (BLAS calls) for out = alpha * op(a) op(b) + beta * out, or None.

    op transposes if trans_* is set. Each thread makes a part of the output's rows. None for stacks
    of matrices, and if BLAS cannot multiply parts of an operand.
    """
    if not out.ndim == a.ndim == b.ndim == 2 or not out.dtype == a.dtype == b.dtype:
        return None
    if not isinstance(beta, (int, float)):
        return None
    if not isinstance(alpha, (int, float)) and not is_number(alpha):
        return None
    left, right = a.T if trans_a else a, b.T if trans_b else b
    if not (out.size and left.shape[1]) or is_symmetric(left, right):
        return None
    found = gemm(out, a, b, trans_a, trans_b)
    return None if found is None else [_job(found, alpha, beta)]


def _job(found: Gemm, alpha: Any, beta: float) -> Job:
    rows, columns = found.out.shape
    step = rows_of_step(columns, found.inner)
    factor = alpha.array if is_number(alpha) else np.array([alpha], np.float64)
    function = ctypes.cast(found.function, ctypes.c_void_p).value or 0
    work = found.out.size * found.inner // _MULTIPLICATIONS
    real = "f32" if found.out.dtype == np.float32 else "f64"
    return kernels_of_file(__file__, real, "product.c")["prod"].job(
        max(1, rows // step), work, gemm=function, is_wide=found.is_wide, flip_a=found.flip_a,
        flip_b=found.flip_b, step=step, rows=rows, columns=columns, inner=found.inner, alpha=factor,
        a=found.a, a_stride=found.stride_a, b=found.b, b_stride=found.stride_b, beta=beta,
        out=found.out, out_stride=found.stride_out,
    )  # fmt: skip


class KnownKernels:
    """Compiled kernels for calls that are not replayed: those that earlier runs asked for.

    A kernel that no earlier run of a program has asked for would be compiled by itself. NumPy does
    such a call, and the kernel is made with all others of its run, once a later run needs one of
    them. Which calls kernels do thus depends only on the runs in one arena (programs' memory), not
    on what the process has compiled or cached. So results are the same in each process.
    """

    def __init__(self) -> None:
        self._run = 0
        self._asked: dict[str, int] = {}
        """Kernel name -> the run that asked for it first."""
        self._addresses: dict[str, int] = {}
        self._failed = False

    def begin_run(self) -> None:
        """Begin a program's run, in which kernels that earlier runs asked for may be used."""
        self._run += 1

    def add(self, calls: Iterable[Call]) -> None:
        """Let later runs use these calls' kernels, as if an earlier run had asked for them."""
        kernels = [job.kernel for call in calls for job in jobs_of(call) or ()]
        self._asked |= dict.fromkeys([kernel.name for kernel in kernels], 0)
        library.want(kernels)

    def run(self, operator: Any, operands: Sequence[Any], options: Mapping[str, Any]) -> bool:
        """Call an operator by its compiled kernels if an earlier run asked for them; else False.

        The caller has asked `operator.compiled_when_live`.
        """
        if operator.gives_number:
            return False
        return self.run_jobs(_find_jobs(operator, operands, options))

    def run_call(self, call: Call) -> bool:
        """If earlier runs asked for all kernels of a call, do it by them; return whether so."""
        return self.run_jobs(jobs_of(call))

    def run_jobs(self, jobs: Sequence[Job] | None) -> bool:
        """Run `jobs` if earlier runs asked for all their kernels; false for None."""
        if jobs is None:
            return False
        for job in jobs:
            if job.kernel.name not in self._addresses and not self._make(jobs):
                return False
        bound_jobs(jobs, self._addresses)()
        return True

    def _make(self, jobs: Sequence[Job]) -> bool:
        """Compile the kernels of `jobs` if earlier runs asked for all of them; returns success."""
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
