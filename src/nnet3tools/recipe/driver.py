"""Runs a plan stage by stage; finished stages are skipped and a failed job is tried again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from nnet3tools.errors import DataError
from nnet3tools.io import log
from nnet3tools.io.checked import matches
from nnet3tools.recipe.jobs import Job, JobError, JobRunner, Outcome, last_lines
from nnet3tools.recipe.plan import Jobs, Later, Link, Remove, Stage, Step, WriteText

_TRIES = 2
_SECONDS_OF_WAIT = 3600.0


def is_done(job: Job) -> bool:
    """Whether the log of `job` says that the same command line has ended with status 0."""
    try:
        with open(job.log, errors="surrogateescape") as file:
            is_this = file.readline().split() == ["#", *job.header.split()]
            ended = [line for line in file if line.startswith("# Ended (code ")]
    except OSError:
        return False
    return is_this and bool(ended) and ended[-1].startswith("# Ended (code 0)")


def first_unfinished(stages: list[Stage]) -> int:
    """The index of the stage after the last finished stage; 0 if none is finished.

    A finished stage's `outputs` exist, files `absent` do not, and its jobs have succeeded.
    """
    for i in reversed(range(len(stages))):
        stage = stages[i]
        there = all(path.exists() and path.stat().st_size > 0 for path in stage.outputs)
        left = any(matches(pattern) for pattern in stage.absent)
        if there and not left and all(is_done(job) for job in (*stage.background, *stage.proof)):
            return i + 1
    return 0


class Driver:
    """Runs stages with a JobRunner and calls `report` after each stage."""

    def __init__(self, runner: JobRunner, report: Callable[[Stage], None], again: bool) -> None:
        """Prepare a driver that calls `report` after each finished stage.

        With `again`, jobs that have succeeded before run again.
        """
        self._runner, self._report, self._again = runner, report, again
        self._running: dict[str, Job] = {}
        self._tries: dict[str, int] = {}
        self._background: set[str] = set()

    def run(self, stage: Stage) -> None:
        """Run a stage; DataError if its inputs are missing, JobError if a job fails twice."""
        for path in stage.inputs:
            if not path.exists():
                raise DataError(f"{path} is missing: stage {stage.number} ({stage.name}) needs it")
        waiting = [job for job in stage.background if self._again or not is_done(job)]
        self.do(stage.steps, waiting)
        self._finish(lambda: set(self._running))
        for path in stage.outputs:
            if not path.exists():
                raise DataError(f"{path} did not come of stage {stage.number} ({stage.name})")
        self._report(stage)

    def tidy_after(self, stage: Stage) -> None:
        """Repeat the Link, Remove and WriteText steps of a stage whose jobs have all succeeded.

        An earlier run of the training may have been stopped before it had done all of them.
        """
        for step in stage.steps:
            if isinstance(step, (Link, Remove, WriteText)):
                step.do()

    def do(self, steps: Iterable[Step], background: Iterable[Job] = ()) -> None:
        """Run steps; `background` jobs, not waited for, start with the first step that has jobs."""
        waiting = [*background]
        for step in self._flat(steps):
            if isinstance(step, Jobs):
                done = all(map(is_done, step.jobs)) and all(path.exists() for path in step.outputs)
                for job in step.jobs if self._again or not done else ():
                    self._submit(job)
                self._submit_background(waiting)
                waiting = []
                self._finish(lambda: set(self._running) - self._background)
            else:
                step.do()
        self._submit_background(waiting)

    def _flat(self, steps: Iterable[Step]) -> Iterable[Jobs | WriteText | Link | Remove]:
        for step in steps:
            if isinstance(step, Later):
                yield from self._flat(step.steps())
            else:
                yield step  # type: ignore[misc]

    # -- jobs

    def _submit_background(self, jobs: list[Job]) -> None:
        for job in jobs:
            self._background.add(job.log)
            self._submit(job)

    def _submit(self, job: Job) -> None:
        os.makedirs(os.path.dirname(job.log), exist_ok=True)
        self._running[job.log] = job
        self._tries[job.log] = 1
        self._runner.submit(job)

    def _finish(self, unfinished: Callable[[], set[str]]) -> None:
        """Wait until `unfinished()`, a set of jobs' logs, is empty; run failed jobs once more."""
        while unfinished():
            for outcome in self._runner.wait(_SECONDS_OF_WAIT):
                self._take(outcome)

    def _take(self, outcome: Outcome) -> None:
        job = outcome.job
        if outcome.status == 0:
            del self._running[job.log]
            self._background.discard(job.log)
            return
        how = outcome.why or f"it ended with status {outcome.status}"
        name = Path(job.log).stem
        if self._tries[job.log] < _TRIES:
            self._tries[job.log] += 1
            log.warning(f"job {name} failed: {how} (log {job.log}); trying it once more")
            self._runner.submit(job)
            return
        del self._running[job.log]
        for line in last_lines(job.log):
            log.write(f"  {line}")
        message = f"job {name} failed twice: {how}; the lines above are the last of {job.log}"
        if job.log in self._background:
            # Background jobs are diagnostics: training goes on without them, as in Kaldi.
            self._background.discard(job.log)
            log.warning(message)
            return
        self._runner.cancel()
        raise JobError(message)
