"""Settings: attributes that recordings (tensor/recording.py) take as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

__all__ = ["HasSettings", "settings_changed", "settings_version"]


class HasSettings:
    """An object whose attributes are settings, but for those in NO_SETTINGS.

    Arrays count by identity: what is recorded refers to them.
    """

    NO_SETTINGS: ClassVar[frozenset[str]] = frozenset()

    if not TYPE_CHECKING:  # for mypy would take any attribute then

        def __setattr__(self, name: str, value: object) -> None:
            old = self.__dict__.get(name, _unset)
            object.__setattr__(self, name, value)
            new = self.__dict__.get(name, _unset)  # a descriptor may have put another thing there
            if old is new or name in self.NO_SETTINGS:
                return
            if old is _unset and type(old := getattr(type(self), name, _unset)) not in _PLAIN:
                return
            if type(old) not in _PLAIN or old != new:
                settings_changed()


_unset = object()
_PLAIN = (bool, int, float, str)
_version = [0]


def settings_changed() -> None:
    """Recordings made before this are not to be used any more."""
    _version[0] += 1


def settings_version() -> int:
    """Equal as long as no setting changes."""
    return _version[0]
