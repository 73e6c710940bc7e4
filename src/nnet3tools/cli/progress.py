"""Progress: reports how many steps of a program are done."""

from __future__ import annotations

import sys
import time

from nnet3tools.io import log


def duration(seconds: float) -> str:
    """A number of seconds as text such as "40 s", "3 min" or "2 h 5 min"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


class Progress:
    """Counts a program's steps and shows the progress; a context manager.

    At a terminal a line is rewritten at most five times a second and erased at the end. In a log
    file a line is written every `log_interval` seconds, so short runs write none.
    """

    def __init__(self, what: str, total: int | None = None, log_interval: float = 30.0) -> None:
        self._what, self._total = what, total
        self._count = 0
        self._is_terminal = sys.stderr.isatty()
        self._interval = 0.2 if self._is_terminal else log_interval
        self._start = self._last = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        log.clear_status()

    def step(self, count: int = 1) -> None:
        """Add `count` completed steps."""
        self._count += count
        now = time.monotonic()
        if now - self._last < self._interval:
            return
        self._last = now
        if self._is_terminal:
            log.show_status(self._line(now))
        else:
            log.log(self._line(now))

    def _line(self, now: float) -> str:
        of = f" of {self._total}" if self._total else ""
        rate = self._count / max(now - self._start, 1e-9)
        left = f", {duration((self._total - self._count) / rate)} left" if self._total else ""
        return f"{self._what}: {self._count}{of}, {rate:.3g} a second{left}"
