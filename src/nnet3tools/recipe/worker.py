"""A worker: a process that runs jobs one after another and keeps data for the next job.

It reads a line of JSON for each job from standard input, and answers with a line on standard
output. It ends at the end of its input, and when the driver dies.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, TypeVar

from nnet3tools.cli.running import run_program
from nnet3tools.cli.started_processes import die_with_parent
from nnet3tools.io import handover
from nnet3tools.io.holder import Holder
from nnet3tools.recipe.inside import LARGEST_HELD, Shell
from nnet3tools.recipe.jobs import Job

T = TypeVar("T")


def main() -> int:
    """Run jobs, each a line of JSON on standard input, until the input ends; returns 0."""
    die_with_parent()
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    handover.keep_tables(_Tables())
    shell = Shell()
    for line in requests:
        request = json.loads(line)
        steps = tuple(tuple(tuple(program) for program in step) for step in request["steps"])
        try:
            reply: dict[str, Any] = {"status": run_job(shell, Job(request["log"], steps))}
        except OSError as error:
            reply = {"status": 1, "why": f"cannot write its log: {error.strerror}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
    return 0


def run_job(shell: Shell, job: Job) -> int:
    """Run a job and write its log in the form of run.pl; returns the exit status."""
    began, computed = time.monotonic(), _cpu_seconds()
    with _output_to(job.log, f"# {job.header} \n# Started at {_date()}\n#\n"):
        try:
            failures = filter(None, map(shell.run, job.steps))
            status = run_program("worker", [], lambda _: next(failures, 0))
        except Exception:
            traceback.print_exc()
            status = 255
        elapsed = time.monotonic() - began
        end = f"# Ended (code {status}) at {_date()}, elapsed time {int(elapsed)} seconds"
        cpu = _cpu_seconds() - computed
        accounting = f"time={int(elapsed)} threads=1 cpu={cpu:.2f} seconds={elapsed:.3f}"
        os.write(2, f"# Accounting: {accounting}\n{end}\n".encode())
    return status


def _cpu_seconds() -> float:
    """The processor time, in seconds, of this process and its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _date() -> str:
    """The current date and time as date(1) prints it."""
    return time.strftime("%a %b %e %H:%M:%S %Z %Y")


@contextlib.contextmanager
def _output_to(log: str, header: str) -> Iterator[None]:
    """Scope that redirects standard output and error to a new log that begins with `header`."""
    os.makedirs(os.path.dirname(log) or ".", exist_ok=True)
    descriptor = os.open(log, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)
    os.write(descriptor, header.encode())
    before = os.dup(1), os.dup(2)
    try:
        for number in (1, 2):
            os.dup2(descriptor, number)
        yield
    finally:
        for number, old in zip((1, 2), before, strict=True):
            os.dup2(old, number)
            os.close(old)
        os.close(descriptor)


class _Tables:
    """A cache of small archives read from disk, each valid while its file is unchanged."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple, tuple[tuple, list]] = OrderedDict()

    def table(self, path: str, holder: Holder[T]) -> list[tuple[str, T]] | None:
        """The (key, object) pairs of an archive, cached; None if it is too large for the cache."""
        if holder.adopt is None or not os.path.isfile(path):
            return None
        status = os.stat(path)
        signature = status.st_mtime_ns, status.st_size, status.st_ino
        if status.st_size > LARGEST_HELD:
            return None
        key = path, holder.name, id(holder)
        if key not in self._kept or self._kept[key][0] != signature:
            self._kept[key] = signature, self._read(path, holder)
        self._kept.move_to_end(key)
        while sum(s[1] for s, _ in self._kept.values()) > 2 * LARGEST_HELD:
            self._kept.popitem(last=False)
        return self._kept[key][1]

    def _read(self, path: str, holder: Holder[T]) -> list[tuple[str, T]]:
        from nnet3tools.io.files import open_input
        from nnet3tools.io.table_reader import iterate_archive

        with open_input(path, header=False) as reader:
            return list(iterate_archive(reader, holder))


if __name__ == "__main__":
    sys.exit(main())
