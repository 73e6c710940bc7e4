"""Numbers that statistics count with: floats on the host, on a device numbers in its memory."""

from __future__ import annotations

from typing import Any, overload

__all__ = ["Counter"]


class Counter:
    """An attribute that is a float; `move` puts it on a device, where it keeps its place.

    There it is what device_counter makes (cupy_backend/scalar.py): `+=` and assignments write into
    its memory, as a captured graph needs it; comparing it with 0 does not wait for the device, and
    everything else works as with a float, but waits.
    """

    def __init__(self, default: float = 0.0) -> None:
        self.default = default
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Counter: ...

    @overload
    def __get__(self, instance: object, owner: type) -> float: ...

    def __get__(self, instance: object | None, owner: type) -> float | Counter:
        if instance is None:
            return self
        found: float = instance.__dict__.get(self.name, self.default)
        return found

    def __set__(self, instance: object, value: float) -> None:
        old = instance.__dict__.get(self.name)
        if isinstance(old, float) or old is None:
            instance.__dict__[self.name] = value
        elif hasattr(old, "assign"):
            old.assign(value)
        else:  # an int
            instance.__dict__[self.name] = value

    @staticmethod
    def move(owner: object, name: str, like: Any = None) -> bool:
        """Move the attribute `name` if it is a Counter (no `like`: to the host); whether it is."""
        if not isinstance(getattr(type(owner), name, None), Counter):
            return False
        value = owner.__dict__[name]
        if like is None:
            if not isinstance(value, (int, float)):
                owner.__dict__[name] = float(value)
        elif isinstance(value, (int, float)):
            from nnet3tools.tensor.cupy_backend.scalar import DeviceCounter

            owner.__dict__[name] = DeviceCounter(float(value))
        return True
