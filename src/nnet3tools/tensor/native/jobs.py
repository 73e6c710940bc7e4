"""Lists of recorded calls as compiled jobs where there are any, in as few calls as possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from nnet3tools.tensor.native.kernels import Job
from nnet3tools.tensor.native.library import library
from nnet3tools.tensor.numpy_backend.addresses import address
from nnet3tools.tensor.numpy_backend.threads import LOCK, num_threads

__all__ = ["Part", "Series", "run_at_once"]

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


class Series:
    """Work in order. Its kernels are made, with all others asked for, when it first runs."""

    __slots__ = ("_parts", "_runs")

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts: Sequence[Part] | None = parts
        self._runs: tuple[Run, ...] = ()
        library.want(job.kernel for jobs, _ in parts for job in jobs or ())

    def __call__(self) -> None:
        if self._parts is not None:
            self._resolve(self._parts)
        for run in self._runs:
            run()

    def _resolve(self, parts: Sequence[Part]) -> None:
        """Tables of jobs, or NumPy's calls where kernels cannot be had."""
        jobs = [job for found, _ in parts for job in found or ()]
        names = [job.kernel.name for job in jobs]
        addresses = library.addresses(names)
        if addresses is None:
            self._runs = tuple(run for _, run in parts)
        else:
            self._runs = tuple(_grouped(parts, dict(zip(names, addresses, strict=True))))
        self._parts = None


def _grouped(parts: Sequence[Part], addresses: dict[str, int]) -> list[Run]:
    """Neighbouring jobs as one call."""
    runs: list[Run] = []
    waiting: list[Job] = []
    for jobs, run in parts:
        if jobs is not None:
            waiting += jobs
            continue
        if waiting:
            runs.append(_table(waiting, addresses))
            waiting = []
        runs.append(run)
    return [*runs, _table(waiting, addresses)] if waiting else runs


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
