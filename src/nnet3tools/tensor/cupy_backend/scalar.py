"""A number that stays on the device until somebody looks at it."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools.tensor import host
from nnet3tools.tensor.arrays import to_host
from nnet3tools.tensor.cupy_backend.device import get_device
from nnet3tools.tensor.element import Element, element

__all__ = ["DeviceCounter", "DeviceScalar"]

_sum = element("_1 = _2 + _3")
_product = element("_1 = _2 * _3")
_affine = element("_1 = _2 * _3 + _4")
_set = element("_1 = _2")
_add = element("_1 += _2")
_scale = element("_1 *= _2")

Number = (int, float, np.integer, np.floating)


def _host(value: Any) -> Any:
    """The number fetched; host arrays and the like as they are."""
    return float(value) if isinstance(value, DeviceScalar) else value


class DeviceScalar:
    """A float64 on the device; sums and products stay there, everything else fetches it.

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

    def __int__(self) -> int:
        return int(float(self))

    def mapped(self, formula: Element, *others: Any) -> DeviceScalar:
        """A new number (_1) by a formula of this one (_2) and others (_3, ...)."""
        made = DeviceScalar(get_device().empty((1,), np.float64))
        rest = (o.array if isinstance(o, DeviceScalar) else float(o) for o in others)
        formula(made.array, self.array, *rest)
        return made

    def _affine(self, factor: float, offset: float) -> DeviceScalar:
        return self.mapped(_affine, factor, offset)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, DeviceScalar):
            return self.mapped(_sum, other)
        if isinstance(other, Number):
            return self if other == 0 else self._affine(1.0, float(other))
        return float(self) + other

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, DeviceScalar):
            return self.mapped(_product, other)
        if isinstance(other, Number):
            return self._affine(float(other), 0.0)
        return float(self) * other

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


class DeviceCounter(DeviceScalar):
    """A number that statistics count with: written in place, so that graphs may point to it.

    Comparing it with 0, which decides whether there are statistics yet, does not wait: it counts as
    positive once anything was added.
    """

    __slots__ = ("_is_zero",)

    def __init__(self, value: float) -> None:
        """A new one, on the device in use."""
        super().__init__(get_device().upload(np.array([value], np.float64)))
        self._is_zero = value == 0.0

    def _mark(self, is_zero: bool) -> None:
        def mark() -> None:
            self._is_zero = is_zero

        host.act(mark)

    def _is_known_zero(self) -> bool:
        return host.decide(lambda: self._is_zero)

    def assign(self, value: Any) -> None:
        """Take another value: a number, or one that is on the device."""
        if value is self:
            return
        if isinstance(value, DeviceScalar):
            _set(self.array, value.array)
            self._mark(False)
        elif value != 0.0 or not self._is_known_zero():
            _set(self.array, float(value))
            self._mark(value == 0.0)

    def __iadd__(self, other: Any) -> DeviceCounter:
        _add(self.array, other.array if isinstance(other, DeviceScalar) else float(other))
        self._mark(False)
        return self

    def __imul__(self, other: Any) -> DeviceCounter:
        if isinstance(other, Number) and other == 0.0:
            self.assign(0.0)
        else:
            _scale(self.array, other.array if isinstance(other, DeviceScalar) else float(other))
        return self

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (int, float)) and other == 0.0:
            return self._is_known_zero()
        return super().__eq__(other)

    def __le__(self, other: Any) -> bool:
        if isinstance(other, (int, float)) and other == 0.0:
            return self._is_known_zero()
        return super().__le__(other)

    def __gt__(self, other: Any) -> bool:
        if isinstance(other, (int, float)) and other == 0.0:
            return not self._is_known_zero()
        return super().__gt__(other)

    def __bool__(self) -> bool:
        return not self._is_known_zero()

    __hash__ = DeviceScalar.__hash__
