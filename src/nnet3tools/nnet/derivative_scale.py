"""The scale of all derivatives in a backward pass: 1 except with loss scaling (fp16).

Backpropagation is linear, so most components ignore the scale. Exceptions are components that
compare derivatives with a configured number, add to them, or collect their statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nnet3tools import tensor
from nnet3tools.tensor import Array

_scales: list[Any] = [None]

_times = tensor.element("_1 *= _2")


def derivative_scale() -> Any:
    """The factor of all derivatives in a block of `scaled_derivatives` (a Number), else None."""
    return _scales[-1]


def as_derivative(number: float) -> Any:
    """`number` times derivative_scale() (1 if None), to compare with or add to derivatives."""
    return number if _scales[-1] is None else _scales[-1] * number


def scale_as_derivative(array: Array) -> None:
    """Multiply an array, in place, by the present derivative scale, to add it to derivatives."""
    if _scales[-1] is not None:
        _times(array, _scales[-1])


@contextmanager
def scaled_derivatives(scale: Any) -> Iterator[None]:
    """Context manager: code inside treats derivatives as multiplied by the factor `scale`."""
    _scales.append(scale)
    try:
        yield
    finally:
        _scales.pop()
