"""Runs jobs on this machine, in worker processes that stay alive between jobs."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field

from nnet3tools.recipe.jobs import Job, Outcome
from nnet3tools.recipe.machine import Machine
from nnet3tools.recipe.submitted import environment_with_programs

_SECONDS_BETWEEN_LOOKS = 1.0
"""The time between two checks of a worker that sends nothing."""


@dataclass
class _Worker:
    """A worker process, its waiting jobs, and what shows that it is still working."""

    environment: dict[str, str]
    process: subprocess.Popen[str] | None = None
    job: Job | None = None
    waiting: deque[Job] = field(default_factory=deque)
    trace: tuple[int, float] = (0, 0.0)
    moved: float = 0.0

    def start(self) -> None:
        """Start the worker process unless it is running."""
        if self.process is not None and self.process.poll() is None:
            return
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nnet3tools.recipe.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # The shell runs pipes over large files, and finds programs on PATH.
            env={**environment_with_programs(), **self.environment},
            start_new_session=True,
        )

    def give(self, job: Job) -> None:
        """Send a job to the worker process, which is started if necessary."""
        self.start()
        assert self.process is not None
        assert self.process.stdin is not None
        self.job, self.moved, self.trace = job, time.monotonic(), (0, 0.0)
        request = {"log": job.log, "steps": job.steps}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def end(self) -> int:
        """Kill the worker process and its children; returns its exit status."""
        process, self.process, self.job = self.process, None, None
        if process is None:
            return 0
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        if process.poll() is None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                process.kill()
        return process.wait()

    def seems_dead(self, seconds: float) -> bool:
        """Whether the worker has neither computed nor written to its log for `seconds`."""
        assert self.process is not None
        assert self.job is not None
        now = time.monotonic()
        trace = _trace(self.process.pid, self.job.log)
        if trace != self.trace:
            self.trace, self.moved = trace, now
        return now - self.moved > seconds


def _trace(pid: int, log: str) -> tuple[int, float]:
    """Clock ticks that a process and its ended children have used, and its log's change time."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            ticks = sum(map(int, file.read().rpartition(")")[2].split()[11:15]))
    except (OSError, ValueError):
        ticks = 0
    try:
        return ticks, os.stat(log).st_mtime
    except OSError:
        return ticks, 0.0


class LocalRunner:
    """A JobRunner with as many worker processes as `machine` says, started when needed."""

    def __init__(self, machine: Machine, hang_timeout: float) -> None:
        self._machine, self._hang_timeout = machine, hang_timeout
        self._workers = [_Worker(machine.environment(i)) for i in range(machine.num_workers)]
        self._selector = selectors.DefaultSelector()

    def submit(self, job: Job) -> None:
        """Queue a job for the worker of its home."""
        worker = self._workers[self._machine.worker_of(job.home)]
        worker.waiting.append(job)
        self._feed(worker)

    def _feed(self, worker: _Worker) -> None:
        """Send the next waiting job to a worker, if it is free."""
        while worker.job is None and worker.waiting:
            job = worker.waiting.popleft()
            try:
                worker.give(job)
            except BrokenPipeError:  # the worker died between two jobs
                self._end(worker)
                worker.give(job)
            self._watch(worker)

    def _watch(self, worker: _Worker) -> None:
        assert worker.process is not None
        assert worker.process.stdout is not None
        if worker.process.stdout.fileno() not in self._selector.get_map():
            self._selector.register(worker.process.stdout, selectors.EVENT_READ, worker)

    def _end(self, worker: _Worker) -> int:
        if worker.process is not None and worker.process.stdout is not None:
            stream = worker.process.stdout
            if not stream.closed and stream.fileno() in self._selector.get_map():
                self._selector.unregister(stream)
        return worker.end()

    def wait(self, seconds: float) -> list[Outcome]:
        """The outcomes of jobs that ended since the last call; kills workers that hang."""
        end = time.monotonic() + seconds
        while True:
            left = max(0.0, min(_SECONDS_BETWEEN_LOOKS, end - time.monotonic()))
            found = [self._finished(key.data) for key, _ in self._selector.select(left)]
            found += [self._killed(w) for w in self._workers if self._hangs(w)]
            for worker in self._workers:
                self._feed(worker)
            outcomes = [outcome for outcome in found if outcome is not None]
            if outcomes or time.monotonic() >= end:
                return outcomes

    def _finished(self, worker: _Worker) -> Outcome | None:
        assert worker.process is not None
        assert worker.process.stdout is not None
        line, job = worker.process.stdout.readline(), worker.job
        if line:
            worker.job = None
            assert job is not None
            return Outcome(job, int(json.loads(line)["status"]))
        status = self._end(worker)
        if job is None:
            return None
        why = f"its process was killed by signal {-status}" if status < 0 else "its process ended"
        return Outcome(job, status or 1, why)

    def _hangs(self, worker: _Worker) -> bool:
        return worker.job is not None and worker.seems_dead(self._hang_timeout)

    def _killed(self, worker: _Worker) -> Outcome:
        job = worker.job
        assert job is not None
        self._end(worker)
        return Outcome(job, 1, f"it neither computed nor wrote for {self._hang_timeout:g} s")

    def cancel(self) -> None:
        """Forget waiting jobs, and kill running jobs."""
        for worker in self._workers:
            worker.waiting.clear()
            if worker.job is not None:
                self._end(worker)

    def close(self) -> None:
        """End all workers; idle workers end when their standard input is closed."""
        for worker in self._workers:
            self._end(worker)
        self._selector.close()
