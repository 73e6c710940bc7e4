"""Mutated inputs in forked processes: one that dies or hangs is a failure, not the end."""

from __future__ import annotations

import mmap
import os
import pickle
import select
import shutil
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from support.fuzz_readers import READERS
from support.fuzz_trial import Failure, attempt, mutation

__all__ = ["Done", "Slice", "Worker"]

SECONDS_WITHOUT_PROGRESS = 120.0


@dataclass(frozen=True)
class Slice:
    """Inputs `start` to `stop` of one reader."""

    reader: str
    seed: int
    start: int
    stop: int


@dataclass(frozen=True)
class Done:
    """What came of a slice, or of the input that its process died of: `rest` is to be done."""

    reader: str
    inputs: int
    seconds: float
    failures: list[tuple[int, Failure]]
    rest: tuple[Slice, ...] = ()

    def summary(self) -> dict[str, Any]:
        """For the log."""
        found = [(index, failure.signature) for index, failure in self.failures]
        return {"reader": self.reader, "inputs": self.inputs, "failures": found}


class Worker:
    """A place for one process at a time, with a folder of its own."""

    def __init__(self, scratch: Path, number: int) -> None:
        self._folder = scratch / f"worker{number}"
        shutil.copytree(scratch / "corpus", self._folder, symlinks=True)
        self._at = mmap.mmap(-1, 8)  # the number of the input at work, which the child writes
        self._process = self._pipe = 0
        self._slice: Slice | None = None
        self._received = b""
        self._seen, self._since = b"", 0.0

    @property
    def busy(self) -> bool:
        """Whether a process is at work."""
        return self._slice is not None

    def start(self, piece: Slice) -> None:
        """Start a process for a slice."""
        self._slice, self._received = piece, b""
        self._seen, self._since = b"", time.monotonic()
        self._at[:] = struct.pack("<q", piece.start)
        self._fork(lambda: self._run(piece))

    def _fork(self, work: Callable[[], object]) -> None:
        self._pipe, writing = os.pipe()
        if (process := os.fork()) == 0:
            status = 1
            try:
                os.chdir(self._folder)
                with os.fdopen(writing, "wb") as file:
                    file.write(pickle.dumps(work()))
                status = 0
            finally:
                os._exit(status)
        os.close(writing)
        self._process = process

    def _run(self, piece: Slice) -> Done:
        began = time.process_time()
        failures = []
        for index in range(piece.start, piece.stop):
            self._at[:] = struct.pack("<q", index)
            failure = attempt(READERS[piece.reader], mutation(piece.reader, index, piece.seed))
            if failure is not None:
                failures.append((index, failure))
        count, seconds = piece.stop - piece.start, time.process_time() - began
        return Done(piece.reader, count, seconds, failures)

    def finished(self, seconds: float) -> Done | None:
        """What came of the slice, if its process ends within so long."""
        if self._slice is None or not self._ended(seconds):
            return None
        piece, self._slice = self._slice, None
        os.close(self._pipe)
        _, status = os.waitpid(self._process, 0)
        if status == 0:
            return pickle.loads(self._received)  # our own child's
        (at,) = struct.unpack("<q", self._at[:])
        how = f"killed by signal {status & 127}" if status & 127 else "process ended"
        failures = [(at, Failure(how, "", ""))]
        rest = (replace(piece, stop=at), replace(piece, start=at + 1))
        return Done(piece.reader, 1, 0.0, failures, tuple(s for s in rest if s.start < s.stop))

    def _ended(self, seconds: float) -> bool:
        if select.select([self._pipe], [], [], seconds)[0]:
            if not (data := os.read(self._pipe, 1 << 20)):
                return True
            self._received += data
            return False
        if self._at[:] != self._seen:
            self._seen, self._since = self._at[:], time.monotonic()
        elif time.monotonic() - self._since > SECONDS_WITHOUT_PROGRESS:
            os.kill(self._process, signal.SIGKILL)
        return False

    def apart(self, work: Callable[[], bytes], otherwise: bytes) -> bytes:
        """What `work` gives in a process of its own; `otherwise` if that dies."""
        self._slice, self._received = Slice("", 0, 0, 0), b""
        self._since = time.monotonic()
        self._fork(work)
        while not self._ended(1.0):
            pass
        self._slice = None
        os.close(self._pipe)
        _, status = os.waitpid(self._process, 0)
        return pickle.loads(self._received) if status == 0 else otherwise
