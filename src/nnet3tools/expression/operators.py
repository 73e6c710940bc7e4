"""The public functions: all operators that formulas or networks may use, except elementwise ones.

Every function that is imported or defined here is public, except `apply`, `common_type`,
`described` and `nodes_checked`.
"""
# ruff: noqa: F401

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

from nnet3tools.expression.control import (
    callback,
    checkpoint,
    choose,
    clip_gradient,
    debug,
    lambda_,
    stop_gradient,
)
from nnet3tools.expression.elementwise import apply, cast
from nnet3tools.expression.help_text import described
from nnet3tools.expression.joins import concatenate, repeat, stack
from nnet3tools.expression.leaves import constant_like
from nnet3tools.expression.losses import (
    cross_entropy,
    dropout,
    dropout_mask,
    masked_mean,
    unlikelihood,
)
from nnet3tools.expression.moves import (
    atleast_nd,
    contiguous,
    flatten,
    flatten_2d,
    narrow,
    reshape,
    shift,
    slice_,
    swap_axes,
    transpose,
)
from nnet3tools.expression.node import Node, Operand, common_type
from nnet3tools.expression.norm import batch_norm, layer_norm, rms_norm
from nnet3tools.expression.order import argmax, argmin, cumsum, logcumsumexp, sort, sparsemax, topk
from nnet3tools.expression.products import affine, affine_relu_dropout, bdot, dot
from nnet3tools.expression.reductions import (
    average,
    logsumexp,
    max_,
    mean,
    min_,
    prod,
    scalar_product,
    std,
    sum_,
    var,
    weighted_average,
)
from nnet3tools.expression.select import cols, gather, index_select, rows, scatter
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.expression.softmax import log_softmax, softmax
from nnet3tools.expression.sparse import csr_dot, dot_csr

_EXPECTED = ("Node", "Node | None", "Sequence[Node]")


def nodes_checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function to raise ExpressionError for an argument that should be a node and is not.

    The wrapped function also refuses nodes of different float types.
    """
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    hints = function.__annotations__
    expected = [(i, n, hints[n]) for i, n in enumerate(names) if hints.get(n) in _EXPECTED]

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        floats: list[Node] = []
        for i, name, hint in expected:
            value = args[i] if i < len(args) else kwargs.get(name)
            for part in value if hint == _EXPECTED[2] and isinstance(value, Iterable) else [value]:
                if part is not None and not isinstance(part, Node):
                    raise ExpressionError(
                        f"{function.__name__}: {name} must be an expression, found {value!r}"
                    )
                if part is not None and part.type.is_float:
                    floats.append(part)
        common_type(function.__name__, floats)
        return function(*args, **kwargs)

    return checked


@described("adj where low <= x <= high, else 0, by x", "the operands broadcast")
def clip(x: Node, low: Operand, high: Operand | None = None) -> Node:
    """Clip x to [low, high]; a single number c means [-c, c], and 0 leaves x unchanged."""
    if high is not None:
        return apply("clip", x, low, high)
    if not isinstance(low, Node) and low == 0:
        return x
    return apply("clip", x, -low, low)


@described("adj * where(x > 0, 1, slope) by x, adj * min(x, 0) by slope", "the operands broadcast")
def prelu(x: Node, slope: Operand = 0.01) -> Node:
    """x where x is positive, elsewhere slope times x."""
    return apply("prelu", x, slope)


@described("0.5 * adj / value")
def sqrt(x: Node, eps: float = 0.0) -> Node:
    """The square root of x + eps."""
    return apply("sqrt", x + eps)


@described("adj * (1 - value * value) by each operand", "the operands broadcast")
def tanh(x: Node, *more: Operand) -> Node:
    """The hyperbolic tangent of the sum of all operands."""
    return apply("tanh", functools.reduce(lambda a, b: a + b, more, x))


__all__ = sorted(
    name
    for name, value in globals().items()
    if isinstance(value, FunctionType)
    and not name.startswith("_")
    and name not in ("apply", "common_type", "described", "nodes_checked")
)

for _name in __all__:
    globals()[_name] = nodes_checked(globals()[_name])
