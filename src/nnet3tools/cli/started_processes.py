"""The processes that this one started, and those that they did: ending them all, willing or not."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

__all__ = ["StartedProcesses"]

_Process = tuple[int, str]
"""Number and time of start: numbers are given to new processes again."""


class StartedProcesses:
    """Those there were when this was made; none where /proc is not."""

    def __init__(self) -> None:
        self._found = _descendants()

    def terminate(self) -> None:
        """Ask them to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End them, and whatever was started since."""
        self._found = [*self._found, *_descendants()]
        self._send(signal.SIGKILL)

    def kill_after(self, seconds: float) -> None:
        """Wait until all have ended, and after so long end those that have not."""
        until = time.monotonic() + seconds
        while self._left():
            if time.monotonic() > until:
                return self.kill()
            time.sleep(0.01)

    def _left(self) -> list[int]:
        """Those that run still."""
        return [number for number, began in self._found if _state(number)[1:] == ("", began)]

    def _send(self, number: int) -> None:
        for process in self._left():
            with suppress(OSError):
                os.kill(process, number)


def _state(number: int) -> tuple[int, str, str]:
    """A process's parent, "ended" if only its status is left, and time of start."""
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
    for number, _ in found:  # which grows
        found += children.get(number, ())
    return found[1:]
