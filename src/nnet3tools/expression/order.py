"""Order along an axis: sort, topk, argmax, argmin; cumulative sums."""

from __future__ import annotations

from nnet3tools.expression.node import Node, NodeOp
from nnet3tools.expression.select import gather
from nnet3tools.expression.shapes import ExpressionError, normal_axis
from nnet3tools.tensor.functional import Type
from nnet3tools.tensor.order import cumulative_sum, sort_indexes

__all__ = ["argmax", "argmin", "cumsum", "sort", "topk"]


class SortIndexes(Node):
    """Places of the first k elements in order, int32; of equal ones the first comes first."""

    type_name = "sort_indexes"
    differentiable = False

    def __init__(self, x: Node, axis: int, k: int, descending: bool) -> None:
        self.axis, self.k, self.descending = axis, k, descending
        super().__init__([x], (*x.shape[:axis], k, *x.shape[axis + 1 :]), Type.INT32)

    def content(self) -> tuple:
        return self.axis, self.k, self.descending

    def forward_ops(self) -> list[NodeOp]:
        x = self.children[0]
        return [sort_indexes.bind(self.value, x.value, self.axis, self.descending)]


class CumSum(Node):
    """Sums of the elements up to each along an axis: the gradient is the sum the other way."""

    type_name, overwrites = "cumsum", True

    def __init__(self, x: Node, axis: int, reverse: bool, exclusive: bool) -> None:
        self.axis, self.reverse, self.exclusive = axis, reverse, exclusive
        super().__init__([x], x.shape, x.type)

    def content(self) -> tuple:
        return self.axis, self.reverse, self.exclusive

    def forward_ops(self) -> list[NodeOp]:
        x = self.children[0]
        return [cumulative_sum.bind(self.value, x.value, self.axis, self.reverse, self.exclusive)]

    def backward_ops(self) -> list[NodeOp | None]:
        x, how = self.children[0], (self.axis, not self.reverse, self.exclusive)
        beta = 0.0 if 0 in self.fresh else 1.0
        return [cumulative_sum.bind(x.grad, self.grad, *how, beta=beta)]

    def backward_reads(self) -> tuple[set[int], bool]:
        return set(), False


def topk(x: Node, k: int, axis: int = -1, descending: bool = True) -> tuple[Node, Node]:
    """The k largest (or smallest) elements along an axis, in order, and their indexes."""
    axis = normal_axis(axis, x.shape, "topk")
    if not 1 <= k <= x.shape[axis]:
        raise ExpressionError(f"topk: no {k} elements along axis {axis} of {x.describe()}")
    indexes = x.graph.add(SortIndexes(x, axis, k, descending))
    return gather(x, axis, indexes), indexes


def sort(x: Node, axis: int = -1, descending: bool = True) -> tuple[Node, Node]:
    """All elements along an axis in order, and their indexes."""
    return topk(x, x.shape[normal_axis(axis, x.shape, "sort")], axis, descending)


def argmax(x: Node, axis: int = -1) -> tuple[Node, Node]:
    """The largest element along an axis and its index."""
    return topk(x, 1, axis, True)


def argmin(x: Node, axis: int = -1) -> tuple[Node, Node]:
    """The smallest element along an axis and its index."""
    return topk(x, 1, axis, False)


def cumsum(x: Node, axis: int = -1, reverse: bool = False, exclusive: bool = False) -> Node:
    """Sums up to each element along an axis, from its end with `reverse`."""
    axis = normal_axis(axis, x.shape, "cumsum")
    if not x.type.is_float:
        raise ExpressionError(f"cumsum of {x.describe()}: expected a float type")
    if x.shape[axis] == 1 and not exclusive:
        return x
    return x.graph.add(CumSum(x, axis, reverse, exclusive))
