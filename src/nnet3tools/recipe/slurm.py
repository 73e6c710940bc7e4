"""Runs jobs on Slurm: submitted with sbatch, watched with squeue and their logs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path

from nnet3tools.errors import DataError, OptionError
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.recipe.jobs import Job, Outcome, last_lines, split_words
from nnet3tools.recipe.submitted import environment_with_programs

_SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_FOR_FILES = 20.0
"""The time that a log may take to appear on this machine after a job's end.

A quarter of it may pass between two changes of the log.
"""
_ENDED = re.compile(r"^# Ended \(code (\d+)", re.M)


def batch_script(job: Job) -> str:
    """The text of a script for sbatch that runs a job and writes its log in run.pl's form."""
    log = shlex.quote(os.path.abspath(job.log))
    lines = [
        "#!/usr/bin/env bash",
        f"cd {shlex.quote(os.getcwd())} || exit",
        f"exec >{log} 2>&1",
        f"printf '%s\\n' {shlex.quote('# ' + job.header)}",
        'echo "# Running on $(hostname), Slurm job $SLURM_JOB_ID"',
        'echo "# Started at $(date)"',
        "read -r began _ </proc/uptime",  # no clock that may be set meanwhile
        "set -o pipefail",
        f"( {job.shell} )",
        "status=$?",
        "read -r ended _ </proc/uptime",
        "spent=$((${ended%.*} - ${began%.*}))",
        'echo "# Accounting: time=$spent threads=1"',
        'echo "# Ended (code $status) at $(date), elapsed time $spent seconds"',
        "exit $status",
    ]
    return "\n".join(lines) + "\n"


@dataclass
class SlurmRunner:
    """A JobRunner that submits each job with sbatch; GPU jobs have additional options.

    A job that Slurm ends (cancelled, node down) counts as failed and is tried again.
    """

    options: str = ""
    gpu_options: str = ""
    num_at_once: int = 0
    _running: dict[str, Job] = field(default_factory=dict)
    _words: list[str] = field(init=False)
    _gpu_words: list[str] = field(init=False)

    def __post_init__(self) -> None:
        """OptionError if Slurm is not installed, or if options have an open quotation."""
        self._words = split_words("slurm-opts", self.options)
        self._gpu_words = split_words("slurm-gpu-opts", self.gpu_options)
        for program in ("sbatch", "squeue", "scancel"):
            if shutil.which(program) is None:
                raise OptionError(f"--executor=slurm: there is no program {program} on PATH")

    def submit(self, job: Job) -> None:
        """Submit a job; DataError if sbatch refuses it."""
        Path(job.log).unlink(missing_ok=True)
        words = [
            "sbatch",
            "--parsable",
            "--no-requeue",
            "--output=/dev/null",
            f"--job-name={Path(job.log).stem}",
            *self._words,
            *(self._gpu_words if job.wants_gpu else ()),
        ]
        found = subprocess.run(
            words,
            input=batch_script(job),
            env=environment_with_programs(),
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode:
            raise DataError(f"sbatch does not take a job: {' '.join(found.stderr.split())}")
        self._running[found.stdout.strip().split(";")[0]] = job

    def wait(self, seconds: float) -> list[Outcome]:
        """The outcomes of jobs that left Slurm's queue; waits up to `seconds` for the first one."""
        end = time.monotonic() + seconds
        while self._running:
            left = self._left()
            if gone := [number for number in self._running if number not in left]:
                return [self._outcome(number) for number in gone]
            if time.monotonic() >= end:
                break
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        return []

    def _left(self) -> set[str]:
        """Numbers of the jobs queued or running in Slurm; all of ours if Slurm does not answer."""
        words = ["squeue", "--noheader", "--format=%A %T", "--states=all"]
        found = subprocess.run(
            [*words, f"--jobs={','.join(self._running)}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode and "Invalid job id" not in found.stderr:
            return set(self._running)
        states = dict(line.split(None, 1) for line in found.stdout.splitlines() if line.strip())
        active = ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED")
        return {number for number, state in states.items() if state.strip() in active}

    def _outcome(self, number: str) -> Outcome:
        """The outcome of the job with Slurm's `number`, from the last line of its log."""
        job = self._running.pop(number)
        lines: list[str] = []
        end = last = time.monotonic() + _SECONDS_FOR_FILES
        while not (ended := _ENDED.search("\n".join(found := last_lines(job.log)))):
            if found != lines:  # the clock of the file's machine may differ: its date says nothing
                lines, end = found, min(last, time.monotonic() + _SECONDS_FOR_FILES / 4)
            if time.monotonic() > end:
                return Outcome(job, 1, f"Slurm ended its job {number}")
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        return Outcome(job, int(ended[1]))

    def cancel(self) -> None:
        """Cancel all submitted jobs that have not ended."""
        if self._running:
            subprocess.run(["scancel", *self._running], capture_output=True, check=False)
        self._running.clear()

    def close(self) -> None:
        """Cancel all jobs; no more jobs follow."""
        self.cancel()
