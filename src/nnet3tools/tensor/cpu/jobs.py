"""Running jobs: many in one call of the C runtime."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnet3tools.tensor.addresses import address
from nnet3tools.tensor.call import in_turn
from nnet3tools.tensor.cpu.choice import are_native
from nnet3tools.tensor.cpu.fusion import fused
from nnet3tools.tensor.cpu.kernels import Job, job_maker
from nnet3tools.tensor.cpu.library import library
from nnet3tools.tensor.plain.threads import LOCK, num_threads
from nnet3tools.tensor.registry import Operator

Work = Callable[[], object]


class CompiledJobs:
    """Callable that runs jobs (kernels with arguments) in order, fused, in one call of C code.

    The first run compiles the kernels, together with all other kernels asked for by then.
    """

    def __init__(self, jobs: Sequence[Job], bind_fallback: Callable[[], Work]) -> None:
        """Request compiling of kernels; `bind_fallback()` makes the callable used if it fails."""
        self._jobs, self._bind_fallback = fused(jobs), bind_fallback
        self._work: Work | None = None
        library.want(job.kernel for job in self._jobs)

    def __call__(self) -> None:
        if self._work is None:
            if (addresses := library.addresses([job.kernel.name for job in self._jobs])) is None:
                self._work = self._bind_fallback()
            else:
                self._work = bound_jobs(self._jobs, addresses)
            del self._jobs, self._bind_fallback  # they take memory
        self._work()


def run_compiling(job: Job) -> bool:
    """Run a job now, compiling its kernel if necessary; returns whether that succeeded."""
    library.want([job.kernel])
    if (addresses := library.addresses([job.kernel.name])) is None:
        return False
    bound_jobs([job], addresses)()
    return True


def bind_kernel(operator: Operator, *operands: Any, **options: Any) -> Work:
    """A callable that makes one call of the operator, by its C kernel if there is one."""
    make = job_maker(operator) if are_native() else None
    jobs = None if make is None else make(*operands, **options)

    def run() -> None:
        if jobs is None or not run_compiling(jobs[0]):
            operator.reference(*operands, **options)

    return run


def run_if_made(job: Job) -> bool:
    """Run a job and return True if its kernel is loaded; else let it be compiled later."""
    name = job.kernel.name
    if (found := library.made(name)) is None:
        library.want([job.kernel])
        return False
    bound_jobs([job], {name: found})()
    return True


def bound_jobs(jobs: Sequence[Job], addresses: Mapping[str, int]) -> Work:
    """A callable that runs jobs in order; `addresses` has compiled functions by kernel name."""
    if not jobs:
        return in_turn(())
    table = array("q")  # NumPy takes 2 us longer
    for j in jobs:
        table.extend((addresses[j.kernel.name], address(j.words), j.steps, j.work))
    runner, place, alive = library.runner, table.buffer_info()[0], (table, tuple(jobs))
    assert runner is not None

    def run() -> None:
        with LOCK:  # one caller at a time may use several threads
            runner(place, len(alive[1]), num_threads())

    return run
