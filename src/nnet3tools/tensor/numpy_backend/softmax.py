"""Softmax and its kin on NumPy."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.registry import implements


@implements("softmax", "numpy")
def softmax(out: np.ndarray, x: np.ndarray) -> None:
    """Shifted by the row's maximum."""
    np.subtract(x, x.max(axis=-1, keepdims=True, initial=-np.inf), out=out)
    np.exp(out, out=out)
    np.divide(out, out.sum(axis=-1, keepdims=True), out=out)


@implements("log_softmax", "numpy")
def log_softmax(out: np.ndarray, x: np.ndarray) -> None:
    """Shifted by the row's maximum."""
    np.subtract(x, x.max(axis=-1, keepdims=True, initial=-np.inf), out=out)
    total = np.exp(out).sum(axis=-1, keepdims=True)
    np.subtract(out, np.log(total), out=out)


@implements("softmax_backprop", "numpy")
def softmax_backprop(in_deriv: np.ndarray, out_value: np.ndarray, out_deriv: np.ndarray) -> None:
    """y * (e - sum(y * e))."""
    total = np.vecdot(out_value, out_deriv)[..., None]
    np.subtract(out_deriv, total, out=in_deriv)
    np.multiply(in_deriv, out_value, out=in_deriv)


@implements("log_softmax_backprop", "numpy")
def log_softmax_backprop(
    in_deriv: np.ndarray, out_value: np.ndarray, out_deriv: np.ndarray
) -> None:
    """e - exp(y) * sum(e)."""
    total = out_deriv.sum(axis=-1, keepdims=True)
    np.subtract(out_deriv, np.exp(out_value) * total, out=in_deriv)
