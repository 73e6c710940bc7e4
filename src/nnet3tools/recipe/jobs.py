"""Jobs: programs to run, with the log they write; and who runs them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Protocol

from nnet3tools.errors import UserError

__all__ = ["Job", "JobError", "JobRunner", "Outcome", "Pipeline", "last_lines", "pipe_text"]

Pipeline = tuple[tuple[str, ...], ...]
"""Programs with their words; each reads what the one before it writes."""


@dataclass(frozen=True)
class Job:
    """What runs as one: pipelines one after the other, as far as they end well.

    `log` is the file for all that they say. Jobs of one `home` share a worker, so that it finds
    what it kept from the one before. `wants_gpu` jobs are given a GPU where there are such.
    """

    log: str
    steps: tuple[Pipeline, ...]
    home: str = ""
    wants_gpu: bool = False

    @property
    def words(self) -> list[str]:
        """The words as run.pl takes them, with | and && among them."""
        words: list[str] = []
        for step in self.steps:
            words += ["&&"] if words else []
            for i, program in enumerate(step):
                words += [*(["|"] if i else []), *program]
        return words

    @property
    def header(self) -> str:
        """The words in the first line of the log, quoted as run.pl quotes them."""
        return " ".join(_quoted_as_run_pl(word) for word in self.words)

    @property
    def shell(self) -> str:
        """A line for bash."""
        return " ".join(w if w in ("|", "&&") else shlex.quote(w) for w in self.words)


def _quoted_as_run_pl(word: str) -> str:
    if word and not any(c.isspace() for c in word):
        return word
    return f"'{word}'" if '"' in word else f'"{word}"'


def pipe_text(*programs: str) -> str:
    """Programs as the rxfilename of a pipe."""
    return " | ".join(" ".join(program.split()) for program in programs) + " |"


@dataclass(frozen=True)
class Outcome:
    """How a job ended: an exit status, or in words why there is none."""

    job: Job
    status: int
    why: str = ""


class JobRunner(Protocol):
    """Runs jobs at once as far as it can."""

    def submit(self, job: Job) -> None:
        """Let a job run when there is room."""

    def wait(self, seconds: float) -> list[Outcome]:
        """The jobs that have ended; at once if there are any, else after so many seconds."""

    def cancel(self) -> None:
        """End all jobs, waiting ones and those that run."""

    def close(self) -> None:
        """Nothing more will come."""


class JobError(UserError):
    """A job failed twice."""


def last_lines(log: str, count: int = 10) -> list[str]:
    """The last lines of a log."""
    try:
        with open(log, errors="replace") as file:
            return [line.rstrip("\n") for line in file][-count:]
    except OSError:
        return []
