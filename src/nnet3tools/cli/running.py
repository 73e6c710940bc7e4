"""Running a program: error lines and exit statuses."""

from __future__ import annotations

import atexit
import errno
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

from nnet3tools.cli.standard_streams import flush_output, forget_output, take_standard_streams
from nnet3tools.cli.started_processes import StartedProcesses
from nnet3tools.errors import EmptyError, Nnet3Error, ProgramError, UserError
from nnet3tools.io import log
from nnet3tools.options import NO_COMMANDS

ERROR = 255  # as Kaldi's main(), which returns -1
NOTHING_DONE = 1
BROKEN_PIPE = 128 + signal.SIGPIPE
INTERRUPTED = 128 + signal.SIGINT


class Usage(Nnet3Error):
    """Raised for a wrong number of arguments (status 1) or --help (0); prints the usage."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.text, self.status = text, status


class Version(Nnet3Error):
    """Raised for --version; its text is printed on standard output."""


# At exit Python collects garbage among all objects, which takes 0.1 s after a training. All files
# are closed by then.
atexit.register(gc.freeze)


def run_program(
    name: str, argv: Sequence[str] | None, body: Callable[[list[str]], int | None]
) -> int:
    """Call `body(words)` and return the exit status, reporting exceptions on standard error.

    `argv` has the words; None: the process's own. User errors print one ERROR line; only bugs print
    a traceback. A closed pipe and Ctrl-C end the program silently.
    """
    log.set_program(name)
    # Programs keep most objects they make, so frequent collections are wasted: one takes 20 ms at a
    # start, in which decoding makes 60,000 objects.
    gc.set_threshold(100_000, 20, 20)
    gc.enable()
    try:
        take_standard_streams()
        with _termination_raises(), _environment_restored(), warnings.catch_warnings():
            # Libraries' warnings, such as NumPy's of overflows, mean nothing to most users.
            warnings.simplefilter("ignore", RuntimeWarning)
            warnings.showwarning = lambda text, kind, *_, **__: log.vlog(
                2, f"{kind.__name__}: {text}"
            )
            status = body(list(sys.argv[1:] if argv is None else argv))
            flush_output()
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
        if error.errno == errno.ENOSPC:
            log.error_line(f"cannot write{where or ' standard output'}: {error.strerror}")
        else:
            log.error_line(f"{error.strerror or error}{where}")
    except ProgramError:
        import traceback

        log.write(traceback.format_exc())
        log.error_line("this is a bug of nnet3tools; please report it with the lines above")
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        forget_output()
    return ERROR


_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SECONDS_TO_UNWIND = 2.0
"""Further signals are ignored for this time; timeout(1) signals the process and its group."""
_SECONDS_TO_END = 1.0
"""Time that the commands of pipes have to end after SIGTERM."""
_SECONDS_TO_RAISE_AGAIN = 0.001
_SECONDS_TO_STOP = 5.0
"""Time after which the program exits without unwinding."""


@contextmanager
def _environment_restored() -> Iterator[None]:
    """Context that restores, at its end, the environment variable which --no-commands sets."""
    before = os.environ.get(NO_COMMANDS)
    try:
        yield
    finally:
        os.environ.pop(NO_COMMANDS, None)
        if before is not None:
            os.environ[NO_COMMANDS] = before


@contextmanager
def _termination_raises() -> Iterator[None]:
    """Context in which a termination signal ends the commands of pipes and raises SystemExit.

    So unfinished files are removed.
    """
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
        """Hook for exceptions ignored in destructors: it raises a SystemExit again, 1 ms later."""
        nonlocal dropped
        if not isinstance(unraisable.exc_value, SystemExit):
            sys.__unraisablehook__(unraisable)
            return
        dropped = True
        signal.setitimer(signal.ITIMER_REAL, _SECONDS_TO_RAISE_AGAIN, _SECONDS_TO_END)

    def insist(number: int) -> None:
        """Handle SIGALRM: kill commands that still run, or raise SystemExit if Python dropped it.

        `number` is the signal that ended the program.
        """
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
        # NumPy, for example, turns a SystemExit during its import into an ImportError.
        raise SystemExit(128 + received) from None
    finally:
        if commands is not None:
            commands.kill_after(_SECONDS_TO_END)
            signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
