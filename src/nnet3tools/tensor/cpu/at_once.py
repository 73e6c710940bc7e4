"""Compiled kernels for calls that run live or are recorded: those that earlier runs asked for.

A kernel that a run is the first to ask for would have to be compiled by itself. So NumPy does that
call, and the kernel is made with all others that the run has asked for when a later run comes to
one of them. Which calls kernels do depends on the runs of one piece of memory (tensor/workspace.py)
alone, not on what else the process has compiled or found in its cache: numbers are the same each
time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from nnet3tools.tensor.cpu.calls import jobs_of, part_of
from nnet3tools.tensor.cpu.kernels import Job
from nnet3tools.tensor.cpu.library import library
from nnet3tools.tensor.plain.addresses import address
from nnet3tools.tensor.plain.threads import LOCK, num_threads
from nnet3tools.tensor.recording import Call, Origin
from nnet3tools.tensor.registry import Operator

__all__ = ["KernelsAtOnce"]

_MANY_CALLS = frozenset(
    ("batch_norm", "batch_norm_backprop", "lstm_nonlinearity", "lstm_nonlinearity_backprop",
     "gru_nonlinearity", "add_row_ranges")
)  # fmt: skip
"""Operators that are many calls of NumPy."""


class KernelsAtOnce:
    """The kernels that programs in one piece of memory have asked for."""

    def __init__(self) -> None:
        self._run = 0
        self._asked: dict[str, int] = {}
        """Kernel -> the run that asked for it first."""
        self._made: dict[str, int] = {}
        """Kernel -> its address."""
        self._failed = False
        self._row = np.zeros(4, np.int64)
        self._place = address(self._row)

    def begin_run(self) -> None:
        """What is asked for from here on is known from the next run on."""
        self._run += 1

    def ask_for(self, calls: Iterable[Call]) -> None:
        """Have the kernels of recorded calls among those that are known."""
        for call in calls:
            for job in part_of(call)[0] or ():
                self._asked[job.kernel.name] = 0
                library.want([job.kernel])

    def jobs_of(self, origin: Origin) -> Sequence[Job] | None:
        """What does the work of a call; None if there are no kernels for it."""
        return jobs_of(origin)

    def run(self, operator: Any, operands: Sequence[Any], options: Mapping[str, Any]) -> bool:
        """Do a call that gives no number; False if it has to be done without kernels."""
        if not self.pay_for(operator):
            return False
        jobs = jobs_of(Origin(operator, operands, options))
        return jobs is not None and self.do(jobs)

    @staticmethod
    def pay_for(operator: Any) -> bool:
        """Whether a kernel that is used once is less work than what NumPy does.

        That is so of formulas, which NumPy does tile by tile; not of what is one call of NumPy.
        """
        if isinstance(operator, Operator):
            return operator.is_formulas or operator.name in _MANY_CALLS
        return True

    def do(self, jobs: Sequence[Job]) -> bool:
        """Do jobs, all or none; False if some kernel is not known yet, or cannot be had."""
        made = self._made
        for job in jobs:
            if job.kernel.name not in made and not self._make(jobs):
                return False
        assert library.runner is not None or not jobs
        row = self._row
        with LOCK:  # there is one second thread
            for job in jobs:
                row[0] = made[job.kernel.name]
                row[1] = address(job.words)
                row[2] = job.steps
                row[3] = -1 if job.in_order else job.work
                library.runner(self._place, 1, num_threads())  # type: ignore[misc]
        return True

    def _make(self, jobs: Sequence[Job]) -> bool:
        """Have the kernels of jobs, if an earlier run has asked for all of them."""
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
        self._made.update(zip(names, addresses, strict=True))
        return True
