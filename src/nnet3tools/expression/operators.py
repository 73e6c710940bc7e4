"""The public functions: all operators that formulas or networks may use.

Every function that is imported or defined here is public, except `apply` and `nodes_checked`.
"""
# ruff: noqa: F401

from __future__ import annotations

import builtins
import functools
import keyword
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
from nnet3tools.expression.elementwise import KINDS, apply, cast
from nnet3tools.expression.joins import concatenate, repeat, stack
from nnet3tools.expression.leaves import constant_like
from nnet3tools.expression.losses import cross_entropy, dropout, dropout_mask, unlikelihood
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
from nnet3tools.expression.node import Node, Operand
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
    """Wrap a function to raise ExpressionError if an argument should be a node and is not."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    hints = function.__annotations__
    expected = [(i, n, hints[n]) for i, n in enumerate(names) if hints.get(n) in _EXPECTED]

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for i, name, hint in expected:
            value = args[i] if i < len(args) else kwargs.get(name)
            for part in value if hint == _EXPECTED[2] and isinstance(value, Iterable) else [value]:
                if part is not None and not isinstance(part, Node):
                    raise ExpressionError(
                        f"{function.__name__}: {name} must be an expression, found {value!r}"
                    )
        return function(*args, **kwargs)

    return checked


def _public_name(kind: str) -> str:
    """The public name of an elementwise `kind`: maximum for max, sign_ if Python has sign."""
    if kind in ("max", "min"):
        return f"{kind}imum"
    return f"{kind}_" if hasattr(builtins, kind) or keyword.iskeyword(kind) else kind


_WITHOUT_NAME = {"add", "sub", "mul", "div", "leaky_relu_back", "prelu_back", "relu_back"}
"""Elementwise functions that are Python's infix operators, or only parts of derivatives."""

for _kind in KINDS.keys() - _WITHOUT_NAME:
    globals()[_public_name(_kind)] = functools.partial(apply, _kind)


def clip(x: Node, low: Operand, high: Operand | None = None) -> Node:
    """Clip x to [low, high]; a single number c means [-c, c], and 0 leaves x unchanged."""
    if high is not None:
        return apply("clip", x, low, high)
    if not isinstance(low, Node) and low == 0:
        return x
    return apply("clip", x, -low, low)


def prelu(x: Node, slope: Operand = 0.01) -> Node:
    """x where x is positive, elsewhere slope times x."""
    return apply("prelu", x, slope)


def sqrt(x: Node, eps: float = 0.0) -> Node:
    """The square root of x + eps."""
    return apply("sqrt", x + eps)


def tanh(x: Node, *more: Operand) -> Node:
    """The hyperbolic tangent of the sum of all operands."""
    return apply("tanh", functools.reduce(lambda a, b: a + b, more, x))


__all__ = sorted(
    name
    for name, value in globals().items()
    if isinstance(value, FunctionType | functools.partial)
    and not name.startswith("_")
    and name not in ("apply", "nodes_checked")
)

for _name in __all__:
    if isinstance(_function := globals()[_name], FunctionType):
        globals()[_name] = nodes_checked(_function)
