"""Settings: attributes whose values are part of recordings (tensor/recording.py)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar


class HasSettings:
    """Base of classes whose attributes (except NO_SETTINGS) recorded operator calls depend on.

    Another value makes all recordings invalid. Arrays are compared by identity, because calls refer
    to them. An attribute's first value, or one set by `begin_settings`, invalidates nothing.
    """

    NO_SETTINGS: ClassVar[frozenset[str]] = frozenset()

    if not TYPE_CHECKING:  # mypy would accept any attribute

        def __setattr__(self, name: str, value: object) -> None:
            if name in self.NO_SETTINGS:
                object.__setattr__(self, name, value)
                return
            before = getattr(self, name, _unset)
            object.__setattr__(self, name, value)
            if before is not _unset:
                note_setting(before, value)


def begin_settings(thing: object, **values: object) -> None:
    """Set attributes of `thing` without making recorded operator calls invalid.

    It is for attributes that a recorded step makes, if missing, each time before it uses them.
    """
    thing.__dict__.update(values)


_unset = object()
_PLAIN = (bool, int, float, str)
_version = [0]


class _Thread(threading.local):
    are_new = False
    """Whether the thread is in `new_objects`."""


_thread = _Thread()


@contextmanager
def new_objects() -> Iterator[None]:
    """In the `with` block, set new objects' attributes; recordings, which lack them, stay valid."""
    before, _thread.are_new = _thread.are_new, True
    try:
        yield
    finally:
        _thread.are_new = before


def note_setting(before: object, value: object) -> None:
    """Invalidate all recorded operator calls if a setting has another value or is a new object."""
    if before is value or _thread.are_new:
        return
    if type(before) not in _PLAIN or type(value) not in _PLAIN or before != value:
        _version[0] += 1


def settings_version() -> int:
    """A number that changes whenever a changed setting makes recorded operator calls invalid."""
    return _version[0]
