"""Jobs: programs to run and their log file; the interface of job runners."""

from __future__ import annotations

import os
import shlex
from collections import deque
from collections.abc import Callable
from typing import Protocol

from nnet3tools.errors import OptionError, UserError
from nnet3tools.fast_dataclasses import dataclass

Pipeline = tuple[tuple[str, ...], ...]
"""Programs with their arguments; each reads the output of the program before it."""


@dataclass(frozen=True)
class Job:
    """Pipelines that run one after another until one fails; their output goes to the file `log`.

    Jobs of one `home`, such as "train.2", run in the same worker process, which keeps their data.
    """

    log: str
    steps: tuple[Pipeline, ...]
    home: str = ""
    wants_gpu: bool = False

    @property
    def words(self) -> list[str]:
        """The command line as words for run.pl, with | and && between programs."""
        return self._joined(_safe_for_run_pl)

    @property
    def header(self) -> str:
        """The command line for the first line of the log, quoted like run.pl does."""
        return " ".join(_quoted_as_run_pl(word) for word in self.words)

    @property
    def shell(self) -> str:
        """The command line as text for bash."""
        return " ".join(self._joined(shlex.quote))

    def _joined(self, quoted: Callable[[str], str]) -> list[str]:
        words: list[str] = []
        for step in self.steps:
            words += ["&&"] if words else []
            for i, program in enumerate(step):
                words += [*(["|"] if i else []), *map(quoted, program)]
        return words


def _safe_for_run_pl(word: str) -> str:
    """Quote a word for run.pl, which passes on words without white space as they are.

    run.pl puts other words in double quotes, or in single quotes if they contain a double quote.
    """
    if len(word.split()) == 1 and word == word.strip():
        return shlex.quote(word)
    if not any(char in word for char in '$`\\"') or ('"' in word and "'" not in word):
        return word
    return "$'" + "".join(f"\\x{byte:02x}" for byte in os.fsencode(word)) + "'"


def _quoted_as_run_pl(word: str) -> str:
    if word and not any(c.isspace() for c in word):
        return word
    return f"'{word}'" if '"' in word else f'"{word}"'


def split_words(option: str, text: str) -> list[str]:
    """Split the text of an option to words as a shell does; OptionError for an open quotation."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise OptionError(f"--{option}={text}: {error}") from None


def pipe_text(*programs: tuple[str, ...]) -> str:
    """Join programs to an rxfilename, a pipe that ends in |; their words are quoted for a shell."""
    return " | ".join(map(shlex.join, programs)) + " |"


def output_pipe(program: tuple[str, ...]) -> str:
    """The wxfilename that pipes into `program`: "| " and its words, quoted for a shell."""
    return "| " + shlex.join(program)


def unzipped(folder: object, kind: str, last: int, first: int = 1) -> str:
    """The rspecifier that reads `folder`/`kind`.`first`.gz to `folder`/`kind`.`last`.gz."""
    files = (f"{folder}/{kind}.{n}.gz" for n in range(first, last + 1))
    return "ark:" + pipe_text(("gunzip", "-c", *files))


@dataclass(frozen=True)
class Outcome:
    """How a job ended: its exit status or, if it has none, status 1 and the reason `why`."""

    job: Job
    status: int
    why: str = ""


class JobRunner(Protocol):
    """Interface of classes that run jobs in parallel, on this machine or elsewhere."""

    num_at_once: int
    """The number of training jobs that surely run at the same time on this machine; 0: none."""

    def submit(self, job: Job) -> None:
        """Start a job now or, if no place is free, later."""

    def wait(self, seconds: float) -> list[Outcome]:
        """Outcomes of jobs that ended since the last call; waits up to `seconds` for one."""

    def cancel(self) -> None:
        """End all waiting and running jobs."""

    def close(self) -> None:
        """Release the resources of the runner; no job may be submitted afterwards."""


class JobError(UserError):
    """Error: a job failed twice."""


def last_lines(log: str, count: int = 10) -> list[str]:
    """The last `count` lines of a log file."""
    try:
        with open(log, errors="replace") as file:
            return [line.rstrip("\n") for line in deque(file, count)]
    except OSError:
        return []
