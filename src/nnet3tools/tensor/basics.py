"""Copies, fills, sums of matrices, inner product, matrix product."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator

_ALL = ("bool", "int32", "uint32", "float16", "float32", "float64")


@operator(types=_ALL)
def copy(out: Array, src: Array) -> None:
    """Set out to src, broadcast to out's shape and converted to its type."""
    out[...] = src


@operator(types=_ALL)
def fill(out: Array, value: float) -> None:
    """Set every element of `out` to `value`."""
    out[...] = value


@operator()
def scale(out: Array, alpha: float) -> None:
    """Multiply `out` by `alpha` in place."""
    out[...] = out * np.float64(alpha)


@operator()
def add(out: Array, src: Array, alpha: float = 1.0) -> None:
    """Add alpha * src to out; src is broadcast to out's shape."""
    out[...] = out + alpha * np.asarray(src, np.float64)


@operator(writes=())
def dot(a: Array, b: Array) -> float:
    """The sum of a * b over all elements of two arrays of one shape, accumulated in float64."""
    return float(np.sum(np.asarray(a, np.float64) * np.asarray(b, np.float64)))


@operator()
def prod(
    out: Array,
    a: Array,
    b: Array,
    trans_a: bool = False,
    trans_b: bool = False,
    alpha: float = 1.0,
    beta: float = 0.0,
) -> None:
    """Set out to alpha * op(a) op(b) + beta * out; op transposes the last two axes with trans_*.

    Shapes: out (N, D), a (N, K) or (K, N), b (K, D) or (D, K). With beta = 0, `out` is not read.
    Arrays with three axes are stacks of matrices: product i is that of matrix i of each stack (a
    stack of one broadcasts). `out` must not overlap a or b.
    """
    left = np.swapaxes(a, -1, -2) if trans_a else a
    right = np.swapaxes(b, -1, -2) if trans_b else b
    value = alpha * (np.asarray(left, np.float64) @ np.asarray(right, np.float64))
    out[...] = value if beta == 0.0 else value + beta * np.asarray(out, np.float64)
