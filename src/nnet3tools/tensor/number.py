"""Numbers that depend on data: arrays of one element, which formulas accept in place of numbers.

They can be part of recordings (tensor/recording.py), and the host waits for a GPU only if code
reads one. `tensor.dot` and reductions to a number return a Number on a GPU, and on the host while
calls are recorded; otherwise they return a float.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from nnet3tools.tensor import recording
from nnet3tools.tensor.arrays import asarray, empty, to_host
from nnet3tools.tensor.basics import add, copy, fill, scale
from nnet3tools.tensor.call import Call
from nnet3tools.tensor.element import Element, element

_FORMULAS = {
    operator.add: element("_1 = _2 + _3"),
    operator.sub: element("_1 = _2 - _3"),
    operator.mul: element("_1 = _2 * _3"),
    operator.truediv: element("_1 = _2 / _3"),
}
_scale = element("_1 *= _2")

_PLAIN = (int, float, np.integer, np.floating)


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A method of Number: function(self, other).

    The result is a Number while work is recorded or if self is on a GPU, else a float.
    """

    def apply(self: Number, other: Any) -> Any:
        in_memory = recording.state.call_recorder is not None or not self.is_host_number
        if in_memory and isinstance(other, (Number, *_PLAIN)):
            return self.mapped(_FORMULAS[function], other, function=function)
        return function(float(self), float(other) if isinstance(other, Number) else other)

    return apply


def _of_float(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method of Number that applies `function` to the value and the other operands as floats."""

    def apply(self: Number, *others: Any) -> Any:
        values = (float(other) if isinstance(other, Number) else other for other in others)
        return function(float(self), *values)

    return apply


class Number:
    """A float64 in the memory of a device.

    Sums and products are computed there. float(x), comparisons and math functions give the same as
    for a float, but wait for the device.
    """

    __slots__ = ("array",)
    __array_ufunc__ = None  # NumPy then leaves operators on arrays and Numbers to this class

    def __init__(self, array: Any) -> None:
        """Store `array`, of shape (1,) and type float64, to which no other code may write."""
        self.array = array

    @property
    def is_host_number(self) -> bool:
        """Whether the number is in the host's memory."""
        return self.array.__class__ is np.ndarray

    def value(self) -> float:
        """The present value as a float, for the host's own use; recordings do not contain it."""
        return float(self.array[0])

    def __float__(self) -> float:
        return float(to_host(self.array)[0])

    def __int__(self) -> int:
        return int(float(self))

    def set_to_result(self, work: Callable[[], Any]) -> None:
        """Call `work`, and set this Number to the number that it returns."""
        result = work()
        if isinstance(result, Number):
            copy(self.array, result.array)
        else:
            self.array[0] = result

    def mapped(
        self, formula: Element, *others: Any, function: Callable[..., float] | None = None
    ) -> Any:
        """A new Number, the value of _1 after `formula`; _2 is this number, _3 ... are `others`.

        `function`, unless None, computes the same from floats: on the host, where a formula of one
        element takes 0.1 ms, work that is recorded then uses the formula only in replays.
        """
        result = empty(1, like=self.array)
        values = [o.array if isinstance(o, Number) else float(o) for o in others]
        recorder = recording.state.call_recorder
        if function is not None and recorder is not None and self.is_host_number:
            with suppress(ArithmeticError, ValueError):  # where a formula gives infinity or NaN
                given = [o.value() if isinstance(o, Number) else float(o) for o in (self, *others)]
                result[0] = function(*given)
                recorder.calls.append(Call.of(formula, result, self.array, *values))
                return Number(result)
        formula(result, self.array, *values)
        return Number(result)

    __add__ = __radd__ = _arithmetic(operator.add)
    __mul__ = __rmul__ = _arithmetic(operator.mul)
    __sub__, __truediv__ = _arithmetic(operator.sub), _arithmetic(operator.truediv)
    __pow__, __abs__, __bool__ = _of_float(operator.pow), _of_float(abs), _of_float(bool)
    __lt__, __le__ = _of_float(operator.lt), _of_float(operator.le)
    __gt__, __ge__ = _of_float(operator.gt), _of_float(operator.ge)
    __eq__, __hash__ = _of_float(operator.eq), _of_float(hash)
    __format__, __repr__ = _of_float(format), _of_float(repr)

    def __neg__(self) -> Any:
        return self * -1.0

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __rtruediv__(self, other: Any) -> Any:
        return other / float(self)


class Measured:
    """Callable that runs an operator and writes its result, a number, into one Number each time."""

    __slots__ = ("number", "run")

    def __init__(self, run: Callable[[], object], number: Number) -> None:
        self.run, self.number = run, number

    def __call__(self) -> Number:
        self.run()
        return self.number


def store(out: Any, number: Any) -> None:
    """Set every element of `out` to a Number or a float."""
    if isinstance(number, Number):
        copy(out, number.array)
    elif recording.state.call_recorder is None and isinstance(out, np.ndarray):
        # does not load the operators, which programs that only read models do not need
        out.fill(float(number))
    else:
        fill(out, float(number))


class Tally(Number):
    """A number in memory that statistics count with; it is changed in place.

    Recorded operator calls can therefore refer to it. `is_zero` and `is_positive` are decisions of
    the host, which a replay takes before the recorded work. For them the host keeps a copy of the
    value, until a Number is added to or multiplied with the Tally. From then on a value on a GPU
    counts as positive.
    """

    __slots__ = ("_host_value",)

    def __init__(self, value: float, like: Any = None) -> None:
        """Make a Tally with this value on the device of the array `like`; None: on the host."""
        super().__init__(asarray(np.array([value], np.float64), like=like))
        self._host_value: float | None = float(value)

    def _update_host_value(self, function: Callable[[float, float], float], value: Any) -> None:
        """Set the host's copy of the number to function(copy, value), now and in each replay.

        If `value` is a Number instead of a float, the copy becomes None: it is unknown.
        """

        def update() -> None:
            before = self._host_value
            if isinstance(value, Number) or before is None:
                self._host_value = None
            else:
                self._host_value = function(before, float(value))

        recording.act(update)

    def _sign(self) -> float:
        """A number with the sign of the value, or 1.0 for an unknown value on a GPU."""
        if self._host_value is None:
            return self.value() if self.is_host_number else 1.0
        return self._host_value

    def assign(self, value: Any) -> None:
        """Set this Tally to a float or Number."""
        if value is self:
            return
        store(self.array, value)
        if isinstance(value, Number):
            self._update_host_value(operator.add, value)
        else:
            recording.act(lambda: setattr(self, "_host_value", float(value)))

    def __iadd__(self, other: Any) -> Tally:
        add(self.array, other.array if isinstance(other, Number) else float(other))
        self._update_host_value(operator.add, other)
        return self

    def __imul__(self, other: Any) -> Tally:
        if isinstance(other, Number):
            _scale(self.array, other.array)
            self._update_host_value(operator.mul, other)
        elif other == 0.0:
            self.assign(0.0)
        else:
            scale(self.array, float(other))
            self._update_host_value(operator.mul, other)
        return self

    def is_zero(self) -> bool:
        """Whether the number is 0, by the host's copy; false for a value that only a GPU has."""
        return recording.decide(lambda: self._sign() == 0.0)

    def is_positive(self) -> bool:
        """Whether the number is above 0, by the host's copy; true for a value only a GPU has."""
        return recording.decide(lambda: self._sign() > 0.0)
