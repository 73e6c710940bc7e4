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

from nnet3tools.errors import OptionError
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.io.memory import free_memory
from nnet3tools.recipe.jobs import Job, Outcome
from nnet3tools.recipe.submitted import environment_with_programs
from nnet3tools.tensor.cpu.compiler import num_processors

_BYTES_OF_WORKER = 1 << 30
"""The memory that a worker is assumed to need."""
_SECONDS_BETWEEN_LOOKS = 1.0
"""The time between two checks of a worker that sends nothing."""


# -- the capacity of this machine


@dataclass(frozen=True)
class Machine:
    """The number of worker processes, and the GPUs; the first workers get one GPU each."""

    num_workers: int
    gpus: tuple[str, ...] = ()

    def worker_of(self, home: str) -> int:
        """The number of the worker process that runs the jobs whose field `home` is `home`."""
        name, _, number = home.partition(".")
        if not number.isdecimal():
            return self.num_workers - 1
        count = self.num_training if name == "train" else self.num_workers
        return (int(number) - 1) % max(1, count)

    @property
    def num_training(self) -> int:
        """The number of workers for training jobs."""
        return min(len(self.gpus) or self.num_workers, self.num_workers)

    def environment(self, worker: int) -> dict[str, str]:
        """Environment variables that worker number `worker` gets besides those of this process."""
        if not self.gpus:
            return {}
        gpu = self.gpus[worker] if worker < len(self.gpus) else ""
        return {"CUDA_VISIBLE_DEVICES": gpu}


def this_machine(num_jobs: int, most_training: int, wants_gpu: bool, num_gpus: int = 0) -> Machine:
    """The Machine with as many workers as processors, memory and (if `wants_gpu`) GPUs allow.

    A positive `num_jobs` limits the number of workers, a positive `num_gpus` the GPUs.
    `most_training` jobs train at once; one more is for diagnostics. OptionError for fewer GPUs.
    """
    if num_jobs < 0:
        raise OptionError(f"--num-jobs={num_jobs}: expected a positive number, or 0")
    gpus = _gpus() if wants_gpu else ()
    if not 0 <= num_gpus <= len(gpus):
        raise OptionError(
            f"--num-gpus={num_gpus}: jobs can use {len(gpus)} GPUs of this machine (--use-gpu=yes, "
            "nvidia-smi -L and CUDA_VISIBLE_DEVICES say which)"
        )
    gpus = gpus[: num_gpus or len(gpus)]
    limit = min(num_processors(), max(1, free_memory() // _BYTES_OF_WORKER))
    if gpus:
        limit = max(limit, len(gpus) + 1)
    wanted = min(most_training, len(gpus) if gpus else most_training) + 1
    count = min(wanted, num_jobs or limit)
    return Machine(max(1, count), gpus)


def _gpus() -> tuple[str, ...]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    if (named := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return tuple(part for part in named.split(",") if part)
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    except OSError:
        return ()
    return tuple(str(i) for i, line in enumerate(listed.stdout.splitlines()) if "GPU" in line)


# -- worker processes


@dataclass
class _Worker:
    """A worker process, its current job and its waiting jobs.

    `trace` is its latest (processor time, change time of the log), `moved` when `trace` changed.
    """

    environment: dict[str, str]
    selector: selectors.BaseSelector
    process: subprocess.Popen[str] | None = None
    job: Job | None = None
    waiting: deque[Job] = field(default_factory=deque)
    trace: tuple[int, float] = (0, 0.0)
    moved: float = 0.0

    def give(self, job: Job) -> None:
        """Send a job to the worker process; start the process if it is not running."""
        if self.process is None or self.process.poll() is not None:
            self.end()
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "nnet3tools.recipe.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                # The shell runs pipes over large files, and finds programs on PATH.
                env={**environment_with_programs(), **self.environment},
                start_new_session=True,
            )
            assert self.process.stdout is not None
            self.selector.register(self.process.stdout, selectors.EVENT_READ, self)
        assert self.process.stdin is not None
        self.job, self.moved, self.trace = job, time.monotonic(), (0, 0.0)
        self.process.stdin.write(json.dumps({"log": job.log, "steps": job.steps}) + "\n")
        self.process.stdin.flush()

    def finished(self) -> Outcome | None:
        """Wait for the process to report its job's end; returns the outcome, None without a job.

        If the process ends without a report, the outcome is a failure and says why.
        """
        assert self.process is not None
        assert self.process.stdout is not None
        line, job = self.process.stdout.readline(), self.job
        if line and job is not None:
            self.job = None
            reply = json.loads(line)
            return Outcome(job, int(reply["status"]), reply.get("why", ""))
        status = self.end()
        if job is None:
            return None
        why = f"its process was killed by signal {-status}" if status < 0 else "its process ended"
        return Outcome(job, status or 1, why)

    def killed(self, why: str) -> Outcome:
        """Kill the worker process; returns the outcome of its job, with the reason `why`."""
        job = self.job
        assert job is not None
        self.end()
        return Outcome(job, 1, why)

    def end(self) -> int:
        """Kill the worker process and its children; returns the exit status of the process."""
        process, self.process, self.job = self.process, None, None
        if process is None:
            return 0
        assert process.stdin is not None
        assert process.stdout is not None
        self.selector.unregister(process.stdout)
        process.stdin.close()
        process.stdout.close()
        if process.poll() is None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                process.kill()
        return process.wait()

    def hangs(self, seconds: float) -> bool:
        """Whether the worker has used no processor time and written no output for `seconds`."""
        if self.process is None or self.job is None:
            return False
        now = time.monotonic()
        trace = _trace(self.process.pid, self.job.log)
        if trace != self.trace:
            self.trace, self.moved = trace, now
        return now - self.moved > seconds


def _trace(pid: int, log: str) -> tuple[int, float]:
    """The clock ticks used by a process and its ended children, and the change time of `log`."""
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
    """A JobRunner with at most `machine.num_workers` worker processes, started when needed."""

    def __init__(self, machine: Machine, hang_timeout: float) -> None:
        self._machine, self._hang_timeout = machine, hang_timeout
        self.num_at_once = machine.num_training
        self._selector = selectors.DefaultSelector()
        numbers = range(machine.num_workers)
        self._workers = [_Worker(machine.environment(i), self._selector) for i in numbers]

    def submit(self, job: Job) -> None:
        """Queue a job for its worker process, which `job.home` determines."""
        worker = self._workers[self._machine.worker_of(job.home)]
        worker.waiting.append(job)
        self._feed(worker)

    @staticmethod
    def _feed(worker: _Worker) -> None:
        """Send a worker its next waiting job if the worker runs no job."""
        if worker.job is None and worker.waiting:
            job = worker.waiting.popleft()
            try:
                worker.give(job)
            except BrokenPipeError:  # the worker died between two jobs
                worker.end()
                worker.give(job)

    def wait(self, seconds: float) -> list[Outcome]:
        """Return the outcomes of ended jobs, after up to `seconds`; kill workers that hang."""
        end, limit = time.monotonic() + seconds, self._hang_timeout
        while True:
            left = max(0.0, min(_SECONDS_BETWEEN_LOOKS, end - time.monotonic()))
            found = [key.data.finished() for key, _ in self._selector.select(left)]
            outcomes = [outcome for outcome in found if outcome is not None]
            hanging = [worker for worker in self._workers if worker.hangs(limit)]
            why = f"it neither computed nor wrote for {limit:g} s"
            outcomes += [worker.killed(why) for worker in hanging]
            for worker in self._workers:
                self._feed(worker)
            if outcomes or time.monotonic() >= end:
                return outcomes

    def cancel(self) -> None:
        """Remove waiting jobs and kill running jobs."""
        for worker in self._workers:
            worker.waiting.clear()
            if worker.job is not None:
                worker.end()

    def close(self) -> None:
        """End all worker processes. Idle ones end when their standard input is closed."""
        for worker in self._workers:
            worker.end()
        self._selector.close()
