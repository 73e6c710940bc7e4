"""Running a program: one line for each way it can end, and the exit status that goes with it."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from nnet3tools.errors import EmptyError, Nnet3Error, ProgramError, UserError
from nnet3tools.io import log

__all__ = ["Usage", "run_program"]

ERROR = 255  # Kaldi's mains return -1
NOTHING_DONE = 1
BROKEN_PIPE = 128 + signal.SIGPIPE
INTERRUPTED = 128 + signal.SIGINT


class Usage(Nnet3Error):
    """Wrong number of arguments (status 1), or help was asked for (status 0): show the usage."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.text, self.status = text, status


def run_program(
    name: str, argv: Sequence[str] | None, body: Callable[[list[str]], int | None]
) -> int:
    """The exit status of `body(words)`; whatever it raises is reported on standard error.

    User errors end in one ERROR line; only bugs show a traceback. A reader that went away and
    Ctrl-C end the program without a word.
    """
    log.set_program(name)
    # Programs mostly keep what they make: Python would look for garbage among it all the time.
    gc.set_threshold(50_000, 20, 20)
    try:
        with _termination_raises():
            status = body(list(sys.argv[1:] if argv is None else argv))
            sys.stdout.flush()
            return status or 0
    except Usage as usage:
        log.write(usage.text)
        return usage.status
    except BrokenPipeError:
        _forget_standard_output()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except EmptyError as error:
        log.error_line(str(error))
        return NOTHING_DONE
    except UserError as error:
        log.error_line(str(error))
    except MemoryError as error:
        log.error_line(f"out of memory {error}".rstrip())
    except OSError as error:
        where = f" '{error.filename}'" if error.filename else ""
        log.error_line(f"{error.strerror or error}{where}")
    except ProgramError:
        traceback.print_exc()
        log.error_line("this is a bug of nnet3tools; please report it with the lines above")
    return ERROR


@contextmanager
def _termination_raises() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that unfinished output files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _forget_standard_output() -> None:
    """Let the interpreter's last flush of standard output go nowhere."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass  # standard output is no file: nothing to flush
