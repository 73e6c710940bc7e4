"""Softmax and its kin on NumPy, block of rows by block of rows."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from nnet3tools.tensor.numpy_backend.row_blocks import bind_rows, block_register
from nnet3tools.tensor.registry import implements

# Passes over the data are few, and each is over a block that is still in cache: the maximum, the
# difference, exp (two thirds of the time), the sum as a product with ones (BLAS takes half of the
# time of NumPy's sum), and a last pass. Slow memory is best met by the two cheap passes, which have
# many loads and stores under way: the maximum reads it, the difference writes it, and exp goes from
# cache to cache.


def _maxima(x: np.ndarray) -> np.ndarray:
    return np.maximum.reduce(x, axis=1, keepdims=True)


def _softmax(ones: np.ndarray, group: int, out: np.ndarray, x: np.ndarray) -> None:
    np.subtract(x, _maxima(x), out)
    np.exp(out, out)
    total = out @ ones
    np.multiply(out, np.reciprocal(total, total), out)


def _log_softmax(ones: np.ndarray, group: int, out: np.ndarray, x: np.ndarray) -> None:
    np.subtract(x, _maxima(x), out)
    powers = block_register(group, 0, out)
    np.exp(out, powers)
    total = powers @ ones
    np.subtract(out, np.log(total, total), out)


def _softmax_backprop(
    group: int, in_deriv: np.ndarray, out_value: np.ndarray, out_deriv: np.ndarray
) -> None:
    total = np.matmul(out_value[:, None, :], out_deriv[:, :, None])[:, :, 0]
    # by way of scratch: in_deriv may be either operand
    difference = block_register(group, 0, in_deriv)
    np.subtract(out_deriv, total, difference)
    np.multiply(out_value, difference, in_deriv)


def _log_softmax_backprop(
    group: int, in_deriv: np.ndarray, out_value: np.ndarray, out_deriv: np.ndarray
) -> None:
    # of both signs: NumPy's sum, by halves, loses less
    total = np.add.reduce(out_deriv, axis=1, keepdims=True)
    powers = block_register(group, 0, in_deriv)
    np.exp(out_value, powers)
    np.multiply(powers, total, powers)
    np.subtract(out_deriv, powers, in_deriv)


def _with_ones(kernel: Callable[..., None], like: np.ndarray) -> Callable[..., None]:
    return functools.partial(kernel, np.ones((like.shape[-1], 1), like.dtype))


@implements("softmax", "numpy", binder=True)
def bind_softmax(out: np.ndarray, x: np.ndarray) -> Callable[[], None]:
    """Shifted by the row's maximum."""
    return bind_rows(_with_ones(_softmax, out), 8, out, x)


@implements("log_softmax", "numpy", binder=True)
def bind_log_softmax(out: np.ndarray, x: np.ndarray) -> Callable[[], None]:
    """Shifted by the row's maximum."""
    return bind_rows(_with_ones(_log_softmax, out), 8, out, x)


@implements("softmax_backprop", "numpy", binder=True)
def bind_softmax_backprop(
    in_deriv: np.ndarray, out_value: np.ndarray, out_deriv: np.ndarray
) -> Callable[[], None]:
    """y (e - sum(y e))."""
    return bind_rows(_softmax_backprop, 4, in_deriv, out_value, out_deriv)


@implements("log_softmax_backprop", "numpy", binder=True)
def bind_log_softmax_backprop(
    in_deriv: np.ndarray, out_value: np.ndarray, out_deriv: np.ndarray
) -> Callable[[], None]:
    """e - exp(y) sum(e)."""
    return bind_rows(_log_softmax_backprop, 8, in_deriv, out_value, out_deriv)
