"""Softmax and log-softmax over the last axis, and their derivatives."""

from __future__ import annotations

from collections.abc import Callable

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.element import element
from nnet3tools.tensor.registry import operator_of_formulas

Step = Callable[[], None]

_softmax = element("power = exp(x - row_max(x)); out = power * (1 / row_sum(power))", "out x")
_log_softmax = element("y = x - row_max(x); out = y - log(row_sum(exp(y)))", "out x")
_softmax_backprop, _log_softmax_backprop = (
    {add: element(f"in_deriv {'+=' if add else '='} {slope}", "in_deriv y e") for add in (0, 1)}
    for slope in ("y * (e - row_sum(y * e))", "e - exp(y) * row_sum(e)")
)


@operator_of_formulas()
def softmax(out: Array, x: Array) -> Step:
    """A step that sets each row of out to exp(x) / sum(exp(x)); out may be x."""
    return _softmax.bind(out, x)


@operator_of_formulas()
def log_softmax(out: Array, x: Array) -> Step:
    """A step that sets each row of out to x - log(sum(exp(x))); out may be x."""
    return _log_softmax.bind(out, x)


@operator_of_formulas(writes=("in_deriv",))
def softmax_backprop(
    in_deriv: Array, out_value: Array, out_deriv: Array, add: bool = False
) -> Step:
    """A step that sets each row of in_deriv to y * (e - sum(y * e)), the derivative of softmax.

    y = out_value, e = out_deriv. With `add` it is added to in_deriv, which may be one of the other
    operands.
    """
    return _softmax_backprop[add].bind(in_deriv, out_value, out_deriv)


@operator_of_formulas(writes=("in_deriv",))
def log_softmax_backprop(
    in_deriv: Array, out_value: Array, out_deriv: Array, add: bool = False
) -> Step:
    """A step that sets each row of in_deriv to e - exp(y) * sum(e), the derivative of log_softmax.

    y = out_value, e = out_deriv. With `add` it is added to in_deriv, which may be one of the other
    operands.
    """
    return _log_softmax_backprop[add].bind(in_deriv, out_value, out_deriv)
