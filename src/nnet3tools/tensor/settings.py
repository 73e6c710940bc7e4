"""Settings: attributes that recordings (tensor/recording.py) take as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

__all__ = ["HasSettings", "begin_settings", "note_setting", "settings_version"]


class HasSettings:
    """An object whose attributes are settings, but for those in NO_SETTINGS.

    Arrays count by identity: what is recorded refers to them. Values that attributes begin with,
    and those that `begin_settings` gives, outdate nothing.
    """

    NO_SETTINGS: ClassVar[frozenset[str]] = frozenset()

    if not TYPE_CHECKING:  # for mypy would take any attribute then

        def __setattr__(self, name: str, value: object) -> None:
            if name in self.NO_SETTINGS:
                object.__setattr__(self, name, value)
                return
            before = getattr(self, name, _unset)
            object.__setattr__(self, name, value)
            if before is not _unset:
                note_setting(before, value)


def begin_settings(thing: object, **values: object) -> None:
    """Give attributes first values, which outdate nothing that was recorded before.

    Only for those that recordings take after somebody has seen to it that they are there.
    """
    thing.__dict__.update(values)


_unset = object()
_PLAIN = (bool, int, float, str)
_version = [0]


def note_setting(before: object, value: object) -> None:
    """Outdate recordings if a setting's new value differs from the one before.

    Arrays, and whatever else is no number, flag or text, count by identity.
    """
    if before is value:
        return
    if type(before) not in _PLAIN or type(value) not in _PLAIN or before != value:
        _version[0] += 1


def settings_version() -> int:
    """Equal as long as no setting changes."""
    return _version[0]
