"""Termination of the processes that this process started, and of this one with its parent."""

import os
import signal
import sys
import time
from contextlib import suppress

_Process = tuple[int, str]
"""Process id and start time, because ids are reused."""


class StartedProcesses:
    """The processes that descend from this one when the object is made.

    There are none on machines without /proc.
    """

    def __init__(self) -> None:
        self._processes = _descendants()

    def terminate(self) -> None:
        """Send SIGTERM to the processes that descended from this one at the object's making."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the descendants, and to descendants that were started since."""
        self._processes = [*self._processes, *_descendants()]
        self._send(signal.SIGKILL)

    def kill_after(self, seconds: float) -> None:
        """Wait until all descendants have ended; after `seconds` kill the rest."""
        until = time.monotonic() + seconds
        while self._running():
            if time.monotonic() > until:
                return self.kill()
            time.sleep(0.01)

    def _running(self) -> list[int]:
        """The ids of the descendants that are still running."""
        return [number for number, began in self._processes if _state(number)[1:] == ("", began)]

    def _send(self, number: int) -> None:
        for process in self._running():
            with suppress(OSError):
                os.kill(process, number)


def _state(number: int) -> tuple[int, str, str]:
    """Parent id, "ended" (if process `number` is gone or a zombie) or "", and start time."""
    try:
        with open(f"/proc/{number}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0, "ended", ""
    return int(fields[1]), "ended" if fields[0] in (b"Z", b"X") else "", fields[19].decode()


def _descendants() -> list[_Process]:
    children: dict[int, list[_Process]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            parent, _, began = _state(int(name))
            children.setdefault(parent, []).append((int(name), began))
    found = [(os.getpid(), "")]
    for number, _ in found:  # grows during the loop
        found += children.get(number, ())
    return found[1:]


_PDEATHSIG, _CHILD_SUBREAPER = 1, 36
"""Operations of Linux's prctl."""


def _prctl(operation: int, value: int) -> None:
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(operation, value)


def die_with_parent() -> None:
    """Ask Linux to kill this process as soon as its parent ends."""
    parent = os.getppid()
    _prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def adopt_orphans() -> None:
    """Ask Linux to make this process the parent of descendants whose own parent has ended."""
    _prctl(_CHILD_SUBREAPER, 1)
