"""Running a program: one line for each way it can end, and the exit status that goes with it."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from nnet3tools.cli.standard_streams import forget_output, take_standard_streams
from nnet3tools.cli.started_processes import StartedProcesses
from nnet3tools.errors import EmptyError, Nnet3Error, ProgramError, UserError
from nnet3tools.io import log

__all__ = ["Usage", "Version", "run_program"]

ERROR = 255  # Kaldi's mains return -1
NOTHING_DONE = 1
BROKEN_PIPE = 128 + signal.SIGPIPE
INTERRUPTED = 128 + signal.SIGINT


class Usage(Nnet3Error):
    """Wrong number of arguments (status 1), or help was asked for (status 0): show the usage."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.text, self.status = text, status


class Version(Nnet3Error):
    """The version was asked for: show it on standard output."""


# Python looks for garbage among all there is before it ends: after a training, for 0.1 s. What has
# to be written by then is.
atexit.register(gc.freeze)


def run_program(
    name: str, argv: Sequence[str] | None, body: Callable[[list[str]], int | None]
) -> int:
    """The exit status of `body(words)`; whatever it raises is reported on standard error.

    User errors end in one ERROR line; only bugs show a traceback. A reader that went away and
    Ctrl-C end the program without a word.
    """
    take_standard_streams()
    log.set_program(name)
    # Programs mostly keep what they make: Python would look for garbage among it all the time.
    gc.set_threshold(50_000, 20, 20)
    gc.enable()
    try:
        with _termination_raises(), warnings.catch_warnings():
            # Overflows and the like are NumPy's to notice, and not for users, who know no NumPy.
            warnings.simplefilter("ignore", RuntimeWarning)
            status = body(list(sys.argv[1:] if argv is None else argv))
            sys.stdout.flush()
            return status or 0
    except Usage as usage:
        log.write(usage.text)
        return usage.status
    except Version as version:
        print(version, flush=True)
        return 0
    except BrokenPipeError:
        forget_output()
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
        _flush_or_forget()
    except ProgramError:
        import traceback

        log.write(traceback.format_exc())
        log.error_line("this is a bug of nnet3tools; please report it with the lines above")
    return ERROR


_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SECONDS_TO_UNWIND = 2.0
"""So long, others are passed over: timeout(1) sends its signal to the process and to its group."""
_SECONDS_TO_END = 1.0
"""So long the commands of pipes may take to end when they are asked to."""
_SECONDS_TO_RAISE_AGAIN = 0.001
_SECONDS_TO_STOP = 5.0
"""After so long a program ends as if killed."""


@contextmanager
def _termination_raises() -> Iterator[None]:
    """Let signals end the commands of pipes and unwind the stack: unfinished files go away."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    began = -_SECONDS_TO_UNWIND
    received: int | None = None
    commands: StartedProcesses | None = None
    dropped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal began, commands, received
        if time.monotonic() - began < _SECONDS_TO_UNWIND:
            return
        began, received = time.monotonic(), number
        commands = StartedProcesses()
        commands.terminate()
        signal.signal(signal.SIGALRM, lambda *_: insist(number))
        signal.setitimer(signal.ITIMER_REAL, _SECONDS_TO_END, _SECONDS_TO_END)
        sys.unraisablehook = drop
        raise SystemExit(128 + number)

    def drop(unraisable: sys.UnraisableHookArgs) -> None:
        """Python drops what is raised while it forgets an object, as after each import."""
        nonlocal dropped
        if not isinstance(unraisable.exc_value, SystemExit):
            sys.__unraisablehook__(unraisable)
            return
        dropped = True
        signal.setitimer(signal.ITIMER_REAL, _SECONDS_TO_RAISE_AGAIN, _SECONDS_TO_END)

    def insist(number: int) -> None:
        """Unwinding waits for commands that do not obey, or Python dropped the exception."""
        nonlocal dropped
        if dropped:
            dropped = False
            raise SystemExit(128 + number)
        StartedProcesses().kill()
        if time.monotonic() - began > _SECONDS_TO_STOP:
            os._exit(128 + number)

    heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heeded}
    before[signal.SIGALRM] = signal.getsignal(signal.SIGALRM)
    hook = sys.unraisablehook
    try:
        yield
    except Exception:
        if received is None:
            raise
        # NumPy, for one, makes an ImportError of what ends its loading.
        raise SystemExit(128 + received) from None
    finally:
        if commands is not None:
            commands.kill_after(_SECONDS_TO_END)
            signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


def _flush_or_forget() -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        forget_output()
