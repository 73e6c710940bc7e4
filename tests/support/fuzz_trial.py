"""One mutated input given to one reader, in this process: what may happen, and what is a failure.

A reader may take an input or refuse it with a UserError in one line that names the file. All else
is a failure: other exceptions and warnings (NumPy's about numbers count in whole programs only,
which silence them), seconds and megabytes out of proportion to the file, commands started and files
written that the user did not name, files left over.
"""

import contextlib
import io
import os
import resource
import signal
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np

from nnet3tools.errors import UserError
from nnet3tools.io.log import _one_line
from nnet3tools.options import NO_COMMANDS
from support.fuzz_programs import BadEnd
from support.fuzz_readers import BAD, FuzzReader
from support.watched import Case, watching

SECONDS, SECONDS_PER_MB = 2.0, 5.0
SPARE_BYTES, BYTES_PER_BYTE = 64 << 20, 20
_LONGEST = 400


@dataclass(frozen=True)
class Failure:
    """What went wrong; failures with one `signature` are one fault."""

    kind: str
    where: str
    detail: str

    @property
    def signature(self) -> str:
        """Kind and place of the failure."""
        return f"{self.kind} in {self.where}" if self.where else self.kind


class _TooLong(BaseException):
    """A reader has used up its processor time."""


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Scope of calls of `attempt`, in which readers refuse commands."""
    np.ones((64, 64), np.float32) @ np.ones((64, 64), np.float32)  # BLAS takes its buffers

    def stop(number: int, frame: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGPROF, stop)
    with warnings.catch_warnings(), mock.patch.dict(os.environ, {NO_COMMANDS: "1"}):
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)


@contextlib.contextmanager
def _limits(size: int) -> Iterator[None]:
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    room = pages * resource.getpagesize() + SPARE_BYTES + BYTES_PER_BYTE * size
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (room, hard))
    signal.setitimer(signal.ITIMER_PROF, SECONDS + SECONDS_PER_MB * size / 1e6)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def attempt(reader: FuzzReader, data: bytes) -> Failure | None:
    """Give a reader an input in the working directory; the failure, or None."""
    Path(BAD).write_bytes(data)
    case = Case.of_words((BAD, *reader.opens), data if reader.names_files else b"")
    failure = _failure_of(reader, len(data), case)
    return Failure("opens or starts", "", " ".join(case.broken)) if case.broken else failure


def _failure_of(reader: FuzzReader, size: int, case: Case) -> Failure | None:
    try:
        with _limits(size), contextlib.redirect_stderr(io.StringIO()), watching(case):
            reader.read(BAD)
    except UserError as error:
        return judged(reader, error) or _left_over()
    except _TooLong as error:
        return _failure(f"more than {SECONDS:g} s", error)
    except MemoryError as error:
        if not reader.may_grow:
            return _failure("out of memory", error)
    except BadEnd as error:
        return Failure(str(error.args[0]), "", str(error))
    except BaseException as error:
        return _failure(type(error).__name__, error)
    return _left_over()


def judged(reader: FuzzReader, error: UserError) -> Failure | None:
    line = _one_line(str(error))
    if len(line) > _LONGEST or "\n" in line:
        return _failure("not one line", error)
    if reader.named and BAD not in line:
        return _failure("file not named", error)
    return None


def _left_over() -> Failure | None:
    left = [name for name in os.listdir() if name.startswith(".nnet3tools") or name == "core"]
    return Failure("files left", "", " ".join(left)) if left else None


def _failure(kind: str, error: BaseException) -> Failure:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/src/nnet3tools/" in frame.filename]
    where = ""
    if ours:
        where = f"{ours[-1].filename.rpartition('/src/nnet3tools/')[2]}:{ours[-1].name}"
    return Failure(kind, where, "".join(traceback.format_exception(error, limit=-6))[-3000:])
