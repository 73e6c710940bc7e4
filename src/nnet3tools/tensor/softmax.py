"""Softmax and log-softmax over the last axis, and their derivatives."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator

__all__ = ["log_softmax", "log_softmax_backprop", "softmax", "softmax_backprop"]


@operator()
def softmax(out: Array, x: Array) -> None:
    """Each row of out = exp(x) / sum(exp(x)); out may be x."""
    shifted = np.exp(np.float64(x) - np.max(x, axis=-1, keepdims=True))
    out[...] = shifted / np.sum(shifted, axis=-1, keepdims=True)


@operator()
def log_softmax(out: Array, x: Array) -> None:
    """Each row of out = x - log(sum(exp(x))); out may be x."""
    shifted = np.float64(x) - np.max(x, axis=-1, keepdims=True)
    out[...] = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))


@operator(writes=("in_deriv",))
def softmax_backprop(in_deriv: Array, out_value: Array, out_deriv: Array) -> None:
    """in_deriv = y * (e - sum(y * e)) a row, y = out_value, e = out_deriv; may be in place."""
    total = np.sum(np.float64(out_value) * out_deriv, axis=-1, keepdims=True)
    in_deriv[...] = out_value * (out_deriv - total)


@operator(writes=("in_deriv",))
def log_softmax_backprop(in_deriv: Array, out_value: Array, out_deriv: Array) -> None:
    """in_deriv = e - exp(y) * sum(e) a row, y = out_value, e = out_deriv; may be in place."""
    total = np.sum(np.float64(out_deriv), axis=-1, keepdims=True)
    in_deriv[...] = out_deriv - np.exp(np.float64(out_value)) * total
