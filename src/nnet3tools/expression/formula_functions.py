"""The functions that a formula may call, and the handling of their arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnet3tools.expression import operators as ops
from nnet3tools.expression.elementwise import KINDS, apply
from nnet3tools.expression.node import Node
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.tensor.formulas import CASTS
from nnet3tools.tensor.formulas.functions import ALIASES


def _reduction(function: Callable[..., Node], kind: str = "") -> Callable[..., Node]:
    """Make a function for formulas: f(x) reduces all elements, f(x, axis) along an axis.

    With `kind`, f(x, y) applies the elementwise function of that name.
    """

    def call(x: Node, other: Any = None, axis: int | None = None) -> Node:
        if other is None or not kind:
            axis = other if other is not None else axis
            return function(x, axis)
        return apply(kind, x, other)

    return call


def _joined(function: Callable[..., Node]) -> Callable[..., Node]:
    def call(*parts: Any, axis: int = -1) -> Node:
        flat = [p for part in parts for p in (part if isinstance(part, list) else [part])]
        if any(not isinstance(p, Node) for p in flat):
            raise ExpressionError("numbers cannot be joined")
        return function(flat, axis)

    return call


def _choose(*nodes_and_index: Any) -> Node:
    *nodes, index = nodes_and_index
    if not isinstance(index, (int, Node)):
        raise ExpressionError("choose takes nodes, and last an index")
    return ops.choose(nodes, index)


CALLABLE: dict[str, Callable[..., Any]] = {
    **{name: functools.partial(apply, name) for name in KINDS},
    **{alias: functools.partial(apply, name) for alias, name in ALIASES.items()},
    "clip": ops.clip,
    "prelu": ops.prelu,
    "sqrt": ops.sqrt,
    "tanh": ops.tanh,
    "sum": _reduction(ops.sum_),
    "mean": _reduction(ops.mean),
    "var": _reduction(ops.var),
    "std": _reduction(ops.std),
    "prod": _reduction(ops.prod),
    "logsumexp": _reduction(ops.logsumexp),
    "max": _reduction(ops.max_, "max"),
    "min": _reduction(ops.min_, "min"),
    "softmax": ops.softmax,
    "log_softmax": ops.log_softmax,
    "logsoftmax": ops.log_softmax,
    "concatenate": _joined(ops.concatenate),
    "stack": _joined(ops.stack),
    "choose": _choose,
    "slice": ops.slice_,
    "sort": lambda x, axis=-1, descending=True: ops.sort(x, axis, descending)[0],
    "topk": lambda x, k, axis=-1, descending=True: ops.topk(x, k, axis, descending)[0],
    "argmax": lambda x, axis=-1: ops.argmax(x, axis)[1],
    "argmin": lambda x, axis=-1: ops.argmin(x, axis)[1],
    **{
        function.__name__: function
        for function in (
            ops.affine, ops.batch_norm, ops.bdot, ops.checkpoint, ops.clip_gradient, ops.cols,
            ops.cross_entropy, ops.cumsum, ops.dot, ops.flatten, ops.gather, ops.index_select,
            ops.logcumsumexp, ops.sparsemax,
            ops.layer_norm, ops.narrow, ops.repeat, ops.reshape, ops.rms_norm, ops.rows,
            ops.scalar_product, ops.scatter, ops.shift, ops.stop_gradient, ops.swap_axes,
            ops.transpose, ops.unlikelihood, ops.weighted_average,
        )
    },
}  # fmt: skip
"""Function by name. None is random or has side effects, because a value may be computed twice."""

for _name, _type in CASTS.items():
    CALLABLE[_name] = lambda x, to=_type: ops.cast(x, to)


@functools.cache
def _signature(name: str) -> inspect.Signature:
    return inspect.signature(CALLABLE[name])


def call_function(name: str, values: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Call the formula function `name` with positional arguments and keyword arguments (`options`).

    ExpressionError if the function cannot take the arguments.
    """
    function = CALLABLE[name]
    try:
        _signature(name).bind(*values, **options)
    except TypeError as error:
        raise ExpressionError(f"{name}: {error}") from None
    try:
        return function(*values, **options)
    except (TypeError, AttributeError, ValueError, OverflowError) as error:
        # a number or list in place of a node, or vice versa
        kinds = ", ".join(type(v).__name__ for v in [*values, *options.values()])
        raise ExpressionError(f"{name} cannot take arguments of kinds {kinds}: {error}") from None
