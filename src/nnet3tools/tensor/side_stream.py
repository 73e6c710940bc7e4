"""The side stream: device work that runs concurrently with the main stream.

On a GPU natural gradient's updates run there (executor/replay.py), from the end of a backward pass
until code reads an estimate, which is in the next backward pass.
"""

from __future__ import annotations

from collections.abc import Callable

_waits: list[Callable[[], None]] = []


def record(wait: Callable[[], None]) -> None:
    """Register work on the second GPU stream; `wait()` makes the main stream wait for this work."""
    _waits.append(wait)


def wait_for_side_stream() -> None:
    """Make later work of the main stream wait for all work registered by `record`."""
    while _waits:
        _waits.pop()()
