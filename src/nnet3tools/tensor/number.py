"""Numbers that depend on data: one-element arrays that formulas take in the place of a number.

So they can be part of what is recorded (tensor/recording.py), and nobody waits for a GPU before
somebody looks at one. `tensor.dot` and reductions to a number return a Number on a GPU, and on the
host while it records; otherwise a float.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.tensor import recording
from nnet3tools.tensor.arrays import asarray, empty, to_host
from nnet3tools.tensor.basics import add, copy, fill, scale
from nnet3tools.tensor.element import Element, element

__all__ = ["Measured", "Number", "Tally", "store"]

_FORMULAS = {
    operator.add: element("_1 = _2 + _3"),
    operator.sub: element("_1 = _2 - _3"),
    operator.mul: element("_1 = _2 * _3"),
    operator.truediv: element("_1 = _2 / _3"),
}
_scale = element("_1 *= _2")

_PLAIN = (int, float, np.integer, np.floating)


class Number:
    """A float64 in memory; sums and products stay there, everything else looks at it.

    float(x), comparisons and math functions work as with a float, but wait for the device.
    """

    __slots__ = ("array",)
    __array_ufunc__ = None  # NumPy's arrays and scalars leave operations with it to it

    def __init__(self, array: Any) -> None:
        """Of an array of shape (1,), float64, which nobody else writes to."""
        self.array = array

    @property
    def is_host_number(self) -> bool:
        """Whether it is in the host's memory."""
        return self.array.__class__ is np.ndarray

    def value(self) -> float:
        """The value now; no recording is told that somebody looks."""
        return float(self.array[0])

    def __float__(self) -> float:
        return float(to_host(self.array)[0])

    def __int__(self) -> int:
        return int(float(self))

    def mapped(self, formula: Element, *others: Any) -> Any:
        """A new number (_1) by a formula of this one (_2) and others (_3, ...)."""
        made = empty(1, like=self.array)
        formula(made, self.array, *(o.array if isinstance(o, Number) else float(o) for o in others))
        return Number(made)

    def __add__(self, other: Any) -> Any:
        return self._with(operator.add, other)

    def __radd__(self, other: Any) -> Any:
        return self._with(operator.add, other)

    def __sub__(self, other: Any) -> Any:
        return self._with(operator.sub, other)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        return self._with(operator.mul, other)

    def __rmul__(self, other: Any) -> Any:
        return self._with(operator.mul, other)

    def __truediv__(self, other: Any) -> Any:
        return self._with(operator.truediv, other)

    def _with(self, function: Callable[[Any, Any], Any], other: Any) -> Any:
        """Their sum or the like: in memory, unless it is on the host and nobody records."""
        in_memory = recording.state.call_recorder is not None or not self.is_host_number
        if in_memory and isinstance(other, (Number, *_PLAIN)):
            return self.mapped(_FORMULAS[function], other)
        return function(float(self), float(other) if isinstance(other, Number) else other)

    def __rtruediv__(self, other: Any) -> Any:
        return other / float(self)

    def __neg__(self) -> Any:
        return self._with(operator.mul, -1.0)

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
        return bool(float(self) == other)

    def __hash__(self) -> int:
        return hash(float(self))

    def __abs__(self) -> float:
        return abs(float(self))

    def __bool__(self) -> bool:
        return float(self) != 0.0

    def __format__(self, spec: str) -> str:
        return format(float(self), spec)

    def __repr__(self) -> str:
        return repr(float(self))


class Measured:
    """A bound operator whose result is a Number, the same one at each call."""

    __slots__ = ("number", "run")

    def __init__(self, run: Callable[[], object], number: Number) -> None:
        self.run, self.number = run, number

    def __call__(self) -> Number:
        self.run()
        return self.number


def store(out: Any, number: Any) -> None:
    """Every element of out = a Number or a float."""
    if isinstance(number, Number):
        copy(out, number.array)
    elif recording.state.call_recorder is None and isinstance(out, np.ndarray):
        # without a backend, which programs that only read models do not need
        out.fill(float(number))
    else:
        fill(out, float(number))


class Tally(Number):
    """A number that statistics count with: changed in place, so that recordings may refer to it.

    `is_zero` and `is_positive` are decisions of the host, which a replay takes before the recorded
    work. The host therefore keeps a copy of the value until a Number goes into it. From then on a
    value on a GPU counts as positive.
    """

    __slots__ = ("_known",)

    def __init__(self, value: float, like: Any = None) -> None:
        """A new one, on the device of `like`."""
        super().__init__(asarray(np.array([value], np.float64), like=like))
        self._known: float | None = float(value)

    def _note(self, function: Callable[[float, float], float], value: Any) -> None:
        """As part of the host's events: that a function of it and another number replaces it."""

        def note() -> None:
            known = self._known
            if isinstance(value, Number) or known is None:
                self._known = None
            else:
                self._known = function(known, float(value))

        recording.act(note)

    def _sign(self) -> float:
        """Positive, 0 or negative."""
        if self._known is None:
            return self.value() if self.is_host_number else 1.0
        return self._known

    def assign(self, value: Any) -> None:
        """Take another value."""
        if value is self:
            return
        store(self.array, value)
        if isinstance(value, Number):
            self._note(operator.add, value)
        else:
            recording.act(lambda: setattr(self, "_known", float(value)))

    def __iadd__(self, other: Any) -> Tally:
        add(self.array, other.array if isinstance(other, Number) else float(other))
        self._note(operator.add, other)
        return self

    def __imul__(self, other: Any) -> Tally:
        if isinstance(other, Number):
            _scale(self.array, other.array)
            self._note(operator.mul, other)
        elif other == 0.0:
            self.assign(0.0)
        else:
            scale(self.array, float(other))
            self._note(operator.mul, other)
        return self

    def is_zero(self) -> bool:
        """Whether it is 0: a decision of the host."""
        return recording.decide(lambda: self._sign() == 0.0)

    def is_positive(self) -> bool:
        """Whether it is greater than 0: a decision of the host."""
        return recording.decide(lambda: self._sign() > 0.0)
