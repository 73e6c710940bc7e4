"""Softmax and its kin on NumPy, block of rows by block of rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnet3tools.tensor.numpy_backend.row_blocks import bind_rows, block_register
from nnet3tools.tensor.registry import implements


def _softmax(group: int, out: np.ndarray, x: np.ndarray) -> None:
    np.subtract(x, np.maximum.reduce(x, axis=1, keepdims=True), out)
    np.exp(out, out)
    total = np.add.reduce(out, axis=1, keepdims=True)
    np.multiply(out, np.reciprocal(total, total), out)


def _log_softmax(group: int, out: np.ndarray, x: np.ndarray) -> None:
    np.subtract(x, np.maximum.reduce(x, axis=1, keepdims=True), out)
    powers = block_register(group, 0, out)
    np.exp(out, powers)
    total = np.add.reduce(powers, axis=1, keepdims=True)
    np.subtract(out, np.log(total, total), out)


def _softmax_backprop(
    group: int, in_deriv: np.ndarray, out_value: np.ndarray, out_deriv: np.ndarray
) -> None:
    product = block_register(group, 0, in_deriv)
    np.multiply(out_value, out_deriv, product)
    total = np.add.reduce(product, axis=1, keepdims=True)
    # y e - y sum(y e): in_deriv may be either operand, so that nothing is read after it is written
    scaled = block_register(group, 1, in_deriv)
    np.multiply(out_value, total, scaled)
    np.subtract(product, scaled, in_deriv)


def _log_softmax_backprop(
    group: int, in_deriv: np.ndarray, out_value: np.ndarray, out_deriv: np.ndarray
) -> None:
    total = np.add.reduce(out_deriv, axis=1, keepdims=True)
    powers = block_register(group, 0, in_deriv)
    np.exp(out_value, powers)
    np.multiply(powers, total, powers)
    np.subtract(out_deriv, powers, in_deriv)


@implements("softmax", "numpy", binder=True)
def bind_softmax(out: np.ndarray, x: np.ndarray) -> Callable[[], None]:
    """Shifted by the row's maximum."""
    return bind_rows(_softmax, 8, out, x)


@implements("log_softmax", "numpy", binder=True)
def bind_log_softmax(out: np.ndarray, x: np.ndarray) -> Callable[[], None]:
    """Shifted by the row's maximum."""
    return bind_rows(_log_softmax, 8, out, x)


@implements("softmax_backprop", "numpy", binder=True)
def bind_softmax_backprop(
    in_deriv: np.ndarray, out_value: np.ndarray, out_deriv: np.ndarray
) -> Callable[[], None]:
    """y e - y sum(y e)."""
    return bind_rows(_softmax_backprop, 4, in_deriv, out_value, out_deriv)


@implements("log_softmax_backprop", "numpy", binder=True)
def bind_log_softmax_backprop(
    in_deriv: np.ndarray, out_value: np.ndarray, out_deriv: np.ndarray
) -> Callable[[], None]:
    """e - exp(y) sum(e)."""
    return bind_rows(_log_softmax_backprop, 8, in_deriv, out_value, out_deriv)
