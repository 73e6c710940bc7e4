"""Compiled kernels for calls that run live or are recorded: those that earlier runs asked for.

A kernel that no earlier run has asked for would be compiled by itself. NumPy does such a call, and
the kernel is made together with all others of its run, as soon as a later run needs one of them.
Which calls are done by kernels thus depends on the runs in one arena alone, not on what the process
has compiled or found in its cache, so that results are the same in each process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nnet3tools.tensor.call import Call
from nnet3tools.tensor.cpu.calls import jobs_of
from nnet3tools.tensor.cpu.jobs import run_jobs
from nnet3tools.tensor.cpu.kernels import Job
from nnet3tools.tensor.cpu.library import library


class KnownKernels:
    """Compiled kernels for calls that are not replayed: those that earlier runs asked for."""

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
        names = [job.kernel.name for job in jobs]
        if (addresses := library.addresses(names)) is None:
            self._failed = True
            return False
        self._addresses.update(zip(names, addresses, strict=True))
        return True
