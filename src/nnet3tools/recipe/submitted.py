"""Runs jobs by a command with the interface of Kaldi's run.pl, queue.pl and slurm.pl."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from nnet3tools.errors import OptionError
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.recipe.jobs import Job, Outcome, split_words

_SECONDS_BETWEEN_LOOKS = 0.1


def environment_with_programs() -> dict[str, str]:
    """A copy of the environment in which PATH has this package's programs, for shells."""
    found = shutil.which("nnet3-train")
    places = [Path(sys.executable).parent, Path(__file__).resolve().parents[3] / "bin"]
    folders = [str(place) for place in places if (place / "nnet3-train").exists()]
    if found is not None or not folders:
        return dict(os.environ)
    return {**os.environ, "PATH": os.pathsep.join([folders[0], os.environ.get("PATH", "")])}


def _command_words(option: str, text: str) -> list[str]:
    """The words of a command that `option` gives; OptionError if there is no such program."""
    words = split_words(option, text)
    if words and shutil.which(words[0]) is None:
        raise OptionError(f"--{option}={text}: there is no command '{words[0]}'")
    return words


@dataclass
class CommandRunner:
    """A JobRunner that starts a command such as queue.pl, with log and program, for each job.

    Jobs that make examples are started by `egs_command` instead, unless it is "". GPU jobs get the
    words `--gpu 1`. The command decides where jobs run, and how many run at once.
    """

    command: str
    egs_command: str = ""
    num_at_once: int = 0
    _running: dict[subprocess.Popen[bytes], Job] = field(default_factory=dict)
    _words: list[str] = field(init=False)
    _egs_words: list[str] = field(init=False)

    def __post_init__(self) -> None:
        """OptionError if the command does not exist."""
        self._words = _command_words("cmd", self.command)
        if not self._words:
            raise OptionError("--executor=cmd needs --cmd")
        self._egs_words = _command_words("egs.cmd", self.egs_command) or self._words

    def submit(self, job: Job) -> None:
        """Start the command that runs a job."""
        words = self._egs_words if job.home.startswith("egs.") else self._words
        gpu = ["--gpu", "1"] if job.wants_gpu else []
        process = subprocess.Popen(
            [*words, *gpu, job.log, *job.words],
            env=environment_with_programs(),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
        )
        self._running[process] = job

    def wait(self, seconds: float) -> list[Outcome]:
        """The outcomes of jobs whose commands have ended; waits up to `seconds` for the first."""
        end = time.monotonic() + seconds
        while True:
            ended = [process for process in self._running if process.poll() is not None]
            if ended or time.monotonic() >= end:
                return [Outcome(self._running.pop(p), p.returncode) for p in ended]
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    def cancel(self) -> None:
        """Terminate the running commands, which then end their jobs."""
        for process in self._running:
            try:
                os.killpg(process.pid, signal.SIGTERM)
            except (ProcessLookupError, PermissionError):
                process.terminate()
        for process in self._running:
            process.wait()
        self._running.clear()

    def close(self) -> None:
        """Terminate all running commands; no more jobs follow."""
        self.cancel()
