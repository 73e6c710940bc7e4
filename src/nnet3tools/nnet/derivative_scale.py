"""The factor that all derivatives of a backward pass have: 1, but for loss scaling (fp16).

Backpropagation is linear, so that components need not know of it, but for those that compare
derivatives with a number of their configuration or add one to them, or keep statistics of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nnet3tools import tensor
from nnet3tools.tensor import Array

__all__ = ["as_derivative", "derivative_scale", "scale_as_derivative", "scaled_derivatives"]

_current: list[Any] = [None]

_times = tensor.element("_1 *= _2")


def derivative_scale() -> Any:
    """None for 1, or a number on the device that formulas take (a Number)."""
    return _current[-1]


def as_derivative(number: float) -> Any:
    """A number that is compared with derivatives, or added to them: times the factor."""
    return number if _current[-1] is None else _current[-1] * number


def scale_as_derivative(array: Array) -> None:
    """Multiply numbers that will be added to derivatives."""
    if _current[-1] is not None:
        _times(array, _current[-1])


@contextmanager
def scaled_derivatives(scale: Any) -> Iterator[None]:
    """In the `with` block derivatives carry a factor `scale`."""
    _current.append(scale)
    try:
        yield
    finally:
        _current.pop()
