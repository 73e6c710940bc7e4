"""Operators on the order along an axis: sort, topk, argmax, argmin, sparsemax; cumulative sums."""

from __future__ import annotations

import numpy as np

from nnet3tools.expression.control import stop_gradient
from nnet3tools.expression.elementwise import apply, cast
from nnet3tools.expression.help_text import described
from nnet3tools.expression.joins import concatenate
from nnet3tools.expression.moves import reshape, shift, slice_
from nnet3tools.expression.node import Node, NodeOp
from nnet3tools.expression.reductions import max_, sum_
from nnet3tools.expression.select import gather
from nnet3tools.expression.shapes import ExpressionError, normal_axis, whole_number
from nnet3tools.tensor.formulas import Type
from nnet3tools.tensor.operators.order import cumulative_sum, sort_indexes


class SortIndexes(Node):
    """A node with the indexes (int32) of the first k elements in (stable) sorted order."""

    type_name = "sort_indexes"
    options = "axis", "k", "descending"
    differentiable = False

    def __init__(self, x: Node, axis: int, k: int, descending: bool) -> None:
        self.axis, self.k, self.descending = axis, k, descending
        super().__init__([x], (*x.shape[:axis], k, *x.shape[axis + 1 :]), Type.INT32)

    def forward_ops(self) -> list[NodeOp]:
        x = self.children[0]
        return [sort_indexes.bind(self.value, x.value, self.axis, self.descending)]


class CumSum(Node):
    """A node with cumulative sums along an axis."""

    type_name, overwrites = "cumsum", True
    options = "axis", "reverse", "exclusive"
    values_read = frozenset(), False

    def __init__(self, x: Node, axis: int, reverse: bool, exclusive: bool) -> None:
        self.axis, self.reverse, self.exclusive = axis, reverse, exclusive
        super().__init__([x], x.shape, x.type)

    def forward_ops(self) -> list[NodeOp]:
        x = self.children[0]
        return [cumulative_sum.bind(self.value, x.value, self.axis, self.reverse, self.exclusive)]

    def backward_ops(self) -> list[NodeOp | None]:
        x, how = self.children[0], (self.axis, not self.reverse, self.exclusive)
        beta = 0.0 if 0 in self.children_to_set else 1.0
        return [cumulative_sum.bind(x.grad, self.grad, *how, beta=beta)]


@described(
    "adj at the chosen elements, 0 elsewhere; none by indexes",
    "x (.., n, ..), both values (.., k, ..)",
)
def topk(x: Node, k: int, axis: int = -1, descending: bool = True) -> tuple[Node, Node]:
    """(the k largest or, if not `descending`, smallest elements along an axis, their indexes)."""
    axis, k = normal_axis(axis, x.shape, "topk"), whole_number(k, "topk")
    if not 1 <= k <= x.shape[axis]:
        raise ExpressionError(f"topk: no {k} elements along axis {axis} of {x.describe()}")
    indexes = x.graph.add(SortIndexes(x, axis, k, descending))
    return gather(x, axis, indexes), indexes


@described("adj in the order of x; none by indexes", "both values as x")
def sort(x: Node, axis: int = -1, descending: bool = True) -> tuple[Node, Node]:
    """(the elements of x sorted along an axis, descending or ascending; the index of each in x)."""
    return topk(x, x.shape[normal_axis(axis, x.shape, "sort")], axis, descending)


@described("adj at the first largest element", "x (.., n, ..), both values (.., 1, ..)")
def argmax(x: Node, axis: int = -1) -> tuple[Node, Node]:
    """(the largest element along an axis, its index); the axis keeps size 1."""
    return topk(x, 1, axis, True)


@described("adj at the first smallest element", "x (.., n, ..), both values (.., 1, ..)")
def argmin(x: Node, axis: int = -1) -> tuple[Node, Node]:
    """(the smallest element along an axis, its index); the axis keeps size 1."""
    return topk(x, 1, axis, False)


@described("the cumulative sum of adj in the other direction")
def cumsum(x: Node, axis: int = -1, reverse: bool = False, exclusive: bool = False) -> Node:
    """Cumulative sums along an axis, from the end if `reverse`; `exclusive`: sum i omits x[i]."""
    axis = normal_axis(axis, x.shape, "cumsum")
    if not x.type.is_float:
        raise ExpressionError(f"cumsum of {x.describe()}: expected a float type")
    if x.shape[axis] == 1 and not exclusive:
        return x
    return x.graph.add(CumSum(x, axis, reverse, exclusive))


@described("the sum over j of adj[j] * exp(x - value[j]), where value[j] contains x")
def logcumsumexp(x: Node, axis: int = -1, reverse: bool = False, exclusive: bool = False) -> Node:
    """The log of cumulative sums of exp along an axis, from the end with `reverse`.

    Elements at doubling distances are joined by logaddexp (Hillis and Steele 1986), which avoids
    overflow. With `exclusive` the first element (with `reverse` the last) is -inf.
    """
    axis = normal_axis(axis, x.shape, "logcumsumexp")
    if not x.type.is_float:
        raise ExpressionError(f"logcumsumexp of {x.describe()}: expected a float type")
    count, by, made = x.shape[axis], 1, x
    while by < count:
        near, far = slice_(made, axis, by), slice_(made, axis, 0, count - by)
        alone = slice_(made, axis, count - by if reverse else 0, None if reverse else by)
        joined = apply("logaddexp", near, far)
        made = concatenate([joined, alone] if reverse else [alone, joined], axis)
        by *= 2
    if not exclusive:
        return made
    places = [0] * len(x.shape)
    places[axis] = -1 if reverse else 1
    return shift(made, places, -np.inf)


@described("adj - mean(adj) over the elements whose value is not 0; 0 for the others")
def sparsemax(x: Node, axis: int = -1) -> Node:
    """The point of the simplex nearest to x along an axis (Martins and Astudillo 2016).

    Many elements are exactly 0. Half precision is computed in float32.
    """
    axis = normal_axis(axis, x.shape, "sparsemax")
    if not x.type.is_float or not x.shape[axis]:
        raise ExpressionError(f"sparsemax of {x.describe()}: expected floats")
    if x.type is Type.FLOAT16:
        return cast(sparsemax(cast(x, Type.FLOAT32), axis), x.type)
    z = x - stop_gradient(max_(x, axis))
    ordered = sort(z, axis)[0]
    numbers = x.graph.constant(np.arange(1, x.shape[axis] + 1), x.type)
    numbers = reshape(numbers, tuple(n if i == axis else 1 for i, n in enumerate(x.shape)))
    chosen = 1 + numbers * ordered > cumsum(ordered, axis)
    threshold = (sum_(apply("where", chosen, ordered, 0), axis) - 1) / sum_(
        cast(chosen, x.type), axis
    )
    return apply("max", z - threshold, 0)
