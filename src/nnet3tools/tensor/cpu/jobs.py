"""Lists of recorded calls as compiled jobs where there are any, in as few calls as possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from nnet3tools.tensor.cpu.fusion import fused
from nnet3tools.tensor.cpu.kernels import Job
from nnet3tools.tensor.cpu.library import library
from nnet3tools.tensor.plain.addresses import address
from nnet3tools.tensor.plain.threads import LOCK, num_threads

__all__ = ["Part", "Series", "run_at_once", "run_if_made"]

Run = Callable[[], object]
Part = tuple[Sequence[Job] | None, Run]
"""Jobs (None: there are none for this) and what does the same by NumPy."""


def run_at_once(job: Job) -> bool:
    """Do a job, whose kernel is made now unless it is there; False if it cannot be had."""
    library.want([job.kernel])
    name = job.kernel.name
    if (addresses := library.addresses([name])) is None:
        return False
    _table([job], {name: addresses[0]})()
    return True


def run_if_made(job: Job) -> bool:
    """Do a job if its kernel is there; else have it made with the next others, and False."""
    name = job.kernel.name
    if (found := library.made(name)) is None:
        library.want([job.kernel])
        return False
    _table([job], {name: found})()
    return True


class Series:
    """Work in order. Its kernels are made, with all others asked for, when it first runs."""

    __slots__ = ("_runs", "_stretches")

    def __init__(self, parts: Sequence[Part]) -> None:
        self._stretches: list[_Stretch] | None = _stretches(parts)
        self._runs: tuple[Run, ...] = ()
        library.want(job.kernel for stretch in self._stretches for job in stretch.jobs)

    def __call__(self) -> None:
        if self._stretches is not None:
            self._resolve(self._stretches)
        for run in self._runs:
            run()

    def _resolve(self, stretches: list[_Stretch]) -> None:
        """Tables of jobs, or NumPy's calls where kernels cannot be had."""
        names = [job.kernel.name for stretch in stretches for job in stretch.jobs]
        addresses = library.addresses(names)
        if addresses is None:
            self._runs = tuple(run for stretch in stretches for run in stretch.runs)
        else:
            found = dict(zip(names, addresses, strict=True))
            self._runs = tuple(run for stretch in stretches for run in stretch.compiled(found))
        self._stretches = None


@dataclass
class _Stretch:
    """Neighbouring parts that have jobs, or none that have."""

    has_jobs: bool
    jobs: list[Job] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    def compiled(self, addresses: dict[str, int]) -> list[Run]:
        """What runs by kernels at these addresses."""
        if not self.has_jobs:
            return self.runs
        return [_table(self.jobs, addresses)] if self.jobs else []


def _stretches(parts: Sequence[Part]) -> list[_Stretch]:
    """Parts in stretches, jobs joined where they can be."""
    found: list[_Stretch] = []
    for jobs, run in parts:
        if not found or found[-1].has_jobs != (jobs is not None):
            found.append(_Stretch(jobs is not None))
        found[-1].jobs += jobs or ()
        found[-1].runs.append(run)
    for stretch in found:
        stretch.jobs = fused(stretch.jobs)
    return found


def _table(jobs: Sequence[Job], addresses: dict[str, int]) -> Run:
    table = np.empty((len(jobs), 4), np.int64)
    for row, job in zip(table, jobs, strict=True):
        row[:] = (
            addresses[job.kernel.name],
            address(job.words),
            job.steps,
            -1 if job.in_order else job.work,
        )
    assert library.runner is not None
    # the tuple keeps alive what the table has addresses of
    return partial(_run, library.runner, address(table), len(table), (table, tuple(jobs)))


def _run(runner: Callable[[int, int, int], None], table: int, count: int, _alive: object) -> None:
    with LOCK:  # there is one second thread
        runner(table, count, num_threads())
