"""Copies, fills, sums of matrices, inner product, matrix product."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.call import Call, operator_of_formulas
from nnet3tools.tensor.element import element
from nnet3tools.tensor.registry import ALL_TYPES, operator

_copy, _scale = element("_1 = _2"), element("_1 *= _2")
_add, _subtract = element("_1 += _2"), element("_1 -= _2")
_COMPUTED = {"float16": "float32", "float32": "float32", "float64": "float64"}
"""Type of an output -> the type in which its sums are computed, also of operands of other types."""
add_scaled = {out: element(f"_1 += {t}(_2) * _3") for out, t in _COMPUTED.items()}
# a Number that is 0 leaves _2 out, which may be infinite
_add_measured = {
    out: element(f"_1 += where(_3 != 0, {t}(_2) * {t}(_3), 0)") for out, t in _COMPUTED.items()
}


@operator_of_formulas(types=ALL_TYPES, compiled_when_live=False)
def copy(out: Array, src: Array) -> Iterator[Call]:
    """Set out to src, broadcast and converted to its type; the decorator runs the yielded Calls."""
    yield Call.of(_copy, out, src)


@operator_of_formulas(types=ALL_TYPES, compiled_when_live=False)
def fill(out: Array, value: float) -> Iterator[Call]:
    """Set every element of `out` to `value`; the decorator runs the yielded Calls."""
    yield Call.of(_copy, out, value)


@operator_of_formulas(compiled_when_live=False)
def scale(out: Array, alpha: float) -> Iterator[Call]:
    """Multiply `out` by `alpha` in place; the decorator runs the yielded Calls."""
    yield Call.of(_scale, out, alpha)


@operator_of_formulas(compiled_when_live=False)
def add(out: Array, src: Array, alpha: float = 1.0) -> Iterator[Call]:
    """Add alpha * src (broadcast; unread if alpha is 0) to out; the decorator runs the Calls."""
    if (number := getattr(alpha, "array", None)) is not None:
        yield Call.of(_add_measured[out.dtype.name], out, src, number)
    elif alpha == 1.0:
        yield Call.of(_add, out, src)
    elif alpha == -1.0:
        yield Call.of(_subtract, out, src)
    elif alpha != 0.0:
        yield Call.of(add_scaled[out.dtype.name], out, src, float(alpha))


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


_depth = [0]


class precise_products(AbstractContextManager[None]):
    """In the `with` block, matrix products have at least the 10 bits and the exponent of TF32.

    This is for sums of squares and the like, which leave the range of half precision. Where
    products are done in single precision, as on the CPU, it changes nothing.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        _depth[0] += 1

    def __exit__(self, *_: object) -> None:
        _depth[0] -= 1


def are_precise() -> bool:
    """Whether the caller is within a `precise_products` block."""
    return _depth[0] > 0
