"""What a device does aside: beside what it is given later, by a stream of its own.

On a GPU natural gradient's updates are aside (executor/replay.py), from the end of a backward pass
to whoever looks at an estimate next, which is the next backward pass.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["begun", "join"]

_joins: list[Callable[[], None]] = []


def begun(join_it: Callable[[], None]) -> None:
    """Note that work is aside; `join_it` lets the device's other work come after it."""
    _joins.append(join_it)


def join() -> None:
    """Let all work that is given to a device from here on begin after all that is aside."""
    while _joins:
        _joins.pop()()
