"""Jobs: programs to run and their log file; the interface of job runners."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from nnet3tools.errors import UserError

Pipeline = tuple[tuple[str, ...], ...]
"""Programs with their arguments; each reads the output of the program before it."""


@dataclass(frozen=True)
class Job:
    """Pipelines to run one after another until one fails; `log` is the file for all output.

    Jobs with the same `home` share a worker process, which keeps data between jobs. A job that
    `wants_gpu` gets a GPU if there is one.
    """

    log: str
    steps: tuple[Pipeline, ...]
    home: str = ""
    wants_gpu: bool = False

    @property
    def words(self) -> list[str]:
        """The command line as run.pl takes it: words, with | and && between programs.

        run.pl gives words without blanks to a shell as they are, so characters such as those of
        <unk> are quoted here.
        """
        return self._joined(lambda word: shlex.quote(word) if len(word.split()) == 1 else word)

    @property
    def header(self) -> str:
        """The command line in the first line of the log, quoted as run.pl quotes it."""
        return " ".join(_quoted_as_run_pl(word) for word in self.words)

    @property
    def shell(self) -> str:
        """The command line for bash."""
        return " ".join(self._joined(shlex.quote))

    def _joined(self, quoted: Callable[[str], str]) -> list[str]:
        words: list[str] = []
        for step in self.steps:
            words += ["&&"] if words else []
            for i, program in enumerate(step):
                words += [*(["|"] if i else []), *map(quoted, program)]
        return words


def _quoted_as_run_pl(word: str) -> str:
    if word and not any(c.isspace() for c in word):
        return word
    return f"'{word}'" if '"' in word else f'"{word}"'


def pipe_text(*programs: str) -> str:
    """The command lines `programs` joined to a pipe in the form of an rxfilename."""
    return " | ".join(" ".join(program.split()) for program in programs) + " |"


def unzipped(folder: object, kind: str, count: int) -> str:
    """The rspecifier of all archives `kind`.N.gz in a folder, which has `count` of them."""
    files = " ".join(f"{folder}/{kind}.{n + 1}.gz" for n in range(count))
    return f"ark:gunzip -c {files} |"


@dataclass(frozen=True)
class Outcome:
    """The end of a job: its exit status, or the reason why there is none."""

    job: Job
    status: int
    why: str = ""


class JobRunner(Protocol):
    """Runs jobs in parallel, as many as there is room for."""

    def submit(self, job: Job) -> None:
        """Run a job now or, if no place is free, later."""

    def wait(self, seconds: float) -> list[Outcome]:
        """Outcomes of jobs that ended since the last call; waits `seconds` for the first one."""

    def cancel(self) -> None:
        """End all jobs, both waiting and running ones."""

    def close(self) -> None:
        """Release the runner; no more jobs follow."""


class JobError(UserError):
    """A job that failed twice."""


def last_lines(log: str, count: int = 10) -> list[str]:
    """The last `count` lines of a log file."""
    try:
        with open(log, errors="replace") as file:
            return [line.rstrip("\n") for line in file][-count:]
    except OSError:
        return []
