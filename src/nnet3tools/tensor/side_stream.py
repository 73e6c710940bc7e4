"""The side stream: device work that runs concurrently with the main stream.

On a GPU natural gradient's updates run there (executor/replay.py), from the end of a backward pass
until code reads an estimate, which is in the next backward pass.
"""

from __future__ import annotations

from collections.abc import Callable

_waits: list[Callable[[], None]] = []


def record(wait: Callable[[], None]) -> None:
    """Register work that was given to the side stream; `wait` lets the main stream wait for it."""
    _waits.append(wait)


def wait_for_side_stream() -> None:
    """Let all work that the main stream gets from now on begin after the side stream's work."""
    while _waits:
        _waits.pop()()
