"""What one program's operators were bound to, for those that components call unbound.

A program runs over the same memory again and again, but components call operators as they go. In a
`with recall:` block a backend may look in the recall for an operator that it bound to the very same
memory in an earlier run, and keep there what it binds now. The recall belongs to the program and
dies with it, and so does its hold on the memory that bound operators refer to.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Recall", "current", "paused"]

_MOST = 1 << 15
"""Operators remembered a program; when there are more, all are forgotten."""


class Recall:
    """Bound operators of one program, under whatever keys a backend finds fit.

    `with recall:` is put around the program's work; blocks may be nested.
    """

    def __init__(self) -> None:
        self.run = 0
        """How often the whole program has run; whoever runs it counts."""
        self.bound: dict[Any, Any] = {}
        """Key -> a bound operator."""
        self.seen: dict[Any, Any] = {}
        """Key -> what it takes to tell whether operands met before are met again."""
        self._outer: list[Recall | None] = []
        self._kept: dict[Hashable, list[Any]] = {}
        self._asked: dict[Hashable, int] = {}
        self._asked_run = 0

    def keep(self, key: Any, value: Any) -> None:
        """Store a bound operator."""
        if len(self.bound) >= _MOST:
            self.bound.clear()
        self.bound[key] = value

    def note(self, key: Any, value: Any) -> None:
        """Store what was met."""
        if len(self.seen) >= _MOST:
            self.seen.clear()
        self.seen[key] = value

    def kept(self, kind: Hashable, make: Callable[[], Any]) -> Any:
        """The array that was made when as many of its kind had been asked for in an earlier run.

        Where it is used, operators are found again that would not be for a new one.
        """
        if self._asked_run != self.run:
            self._asked_run = self.run
            self._asked.clear()
        number = self._asked.get(kind, 0)
        self._asked[kind] = number + 1
        arrays = self._kept.setdefault(kind, [])
        if number == len(arrays):
            arrays.append(make())
        return arrays[number]

    def __enter__(self) -> None:
        global _current
        self._outer.append(_current)
        _current = self

    def __exit__(self, *_: object) -> None:
        global _current
        _current = self._outer.pop()


_current: Recall | None = None


def current() -> Recall | None:
    """The recall of the program that is running, if there is one."""
    return _current


@contextmanager
def paused() -> Iterator[None]:
    """Recall nothing in the `with` block: what is bound there becomes part of something larger."""
    global _current
    before, _current = _current, None
    try:
        yield
    finally:
        _current = before
