"""A number that stays on the device until somebody looks at it."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools.tensor.arrays import to_host
from nnet3tools.tensor.cupy_backend.device import get_device
from nnet3tools.tensor.element import element

__all__ = ["DeviceScalar"]

_sum = element("_1 = _2 + _3")
_affine = element("_1 = _2 * _3 + _4")

Number = (int, float, np.integer, np.floating)


def _host(value: Any) -> Any:
    """The number fetched; host arrays and the like as they are."""
    return float(value) if isinstance(value, DeviceScalar) else value


class DeviceScalar:
    """A float64 on the device; sums and multiples stay there, everything else fetches it.

    What tensor.dot and reductions to a number return: float(x), comparisons and math functions
    work as on a float, but wait for the device.
    """

    __slots__ = ("array",)
    __array_priority__ = 1000.0  # NumPy's scalars leave sums with it to it

    def __init__(self, array: Any) -> None:
        """Of an array of shape (1,), float64, which nobody writes to any more."""
        self.array = array

    def __float__(self) -> float:
        return float(to_host(self.array)[0])

    def _affine(self, factor: float, offset: float) -> DeviceScalar:
        made = DeviceScalar(get_device().empty((1,), np.float64))
        _affine(made.array, self.array, float(factor), float(offset))
        return made

    def __add__(self, other: Any) -> Any:
        if isinstance(other, DeviceScalar):
            made = DeviceScalar(get_device().empty((1,), np.float64))
            _sum(made.array, self.array, other.array)
            return made
        if isinstance(other, Number):
            return self if other == 0 else self._affine(1.0, float(other))
        return float(self) + other

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Number):
            return self._affine(float(other), 0.0)
        return float(self) * _host(other)

    __rmul__ = __mul__

    def __neg__(self) -> DeviceScalar:
        return self._affine(-1.0, 0.0)

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __truediv__(self, other: Any) -> Any:
        return self * (1.0 / other) if isinstance(other, Number) else float(self) / _host(other)

    def __rtruediv__(self, other: Any) -> float:
        return _host(other) / float(self)

    def __pow__(self, other: Any) -> float:
        return float(self) ** float(other)

    def __lt__(self, other: Any) -> bool:
        return float(self) < float(other)

    def __le__(self, other: Any) -> bool:
        return float(self) <= float(other)

    def __gt__(self, other: Any) -> bool:
        return float(self) > float(other)

    def __ge__(self, other: Any) -> bool:
        return float(self) >= float(other)

    def __eq__(self, other: object) -> bool:
        return float(self) == float(other)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return hash(float(self))

    def __abs__(self) -> float:
        return abs(float(self))

    def __bool__(self) -> bool:
        return float(self) != 0.0

    def __format__(self, spec: str) -> str:
        return format(float(self), spec)

    def __repr__(self) -> str:
        return f"DeviceScalar({float(self)!r})"
