"""Softmax and log-softmax over the last axis, and their derivatives."""

from __future__ import annotations

from collections.abc import Iterator

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.call import Call, operator_of_formulas
from nnet3tools.tensor.element import element

_softmax = element("power = exp(x - row_max(x)); out = power * (1 / row_sum(power))", "out x")
_log_softmax = element("y = x - row_max(x); out = y - log(row_sum(exp(y)))", "out x")
_softmax_backprop, _log_softmax_backprop = (
    {add: element(f"in_deriv {'+=' if add else '='} {slope}", "in_deriv y e") for add in (0, 1)}
    for slope in ("y * (e - row_sum(y * e))", "e - exp(y) * row_sum(e)")
)


@operator_of_formulas()
def softmax(out: Array, x: Array) -> Iterator[Call]:
    """Set each row of out to exp(x) / sum(exp(x)); out may be x. The decorator runs the Calls."""
    yield Call.of(_softmax, out, x)


@operator_of_formulas()
def log_softmax(out: Array, x: Array) -> Iterator[Call]:
    """Set each row of out to x - log(sum(exp(x))); out may be x. The decorator runs the Calls."""
    yield Call.of(_log_softmax, out, x)


@operator_of_formulas(writes=("in_deriv",))
def softmax_backprop(
    in_deriv: Array, out_value: Array, out_deriv: Array, add: bool = False
) -> Iterator[Call]:
    """Set each row of in_deriv to y * (e - sum(y * e)), the derivative of softmax.

    y = out_value, e = out_deriv. With `add` it is added to in_deriv, which may be one of the other
    operands. The decorator runs the yielded Calls.
    """
    yield Call.of(_softmax_backprop[add], in_deriv, out_value, out_deriv)


@operator_of_formulas(writes=("in_deriv",))
def log_softmax_backprop(
    in_deriv: Array, out_value: Array, out_deriv: Array, add: bool = False
) -> Iterator[Call]:
    """Set each row of in_deriv to e - exp(y) * sum(e), the derivative of log_softmax.

    y = out_value, e = out_deriv. With `add` it is added to in_deriv, which may be one of the other
    operands. The decorator runs the yielded Calls.
    """
    yield Call.of(_log_softmax_backprop[add], in_deriv, out_value, out_deriv)
