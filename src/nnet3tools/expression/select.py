"""Picking elements by indexes: gather, scatter, index_select, rows, cols.

Indexes are int32 nodes or lists of numbers; numbers are checked when the node is built.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnet3tools import tensor
from nnet3tools.expression.leaves import Constant
from nnet3tools.expression.node import Node, NodeOp
from nnet3tools.expression.shapes import ExpressionError, normal_axis
from nnet3tools.tensor.functional import Type
from nnet3tools.tensor.gather import add_gathered, add_taken, take
from nnet3tools.tensor.gather import gather as gather_op
from nnet3tools.tensor.gather import scatter as scatter_op

__all__ = ["cols", "gather", "index_select", "rows", "scatter"]

Indexes = Node | Sequence[int] | np.ndarray


class IndexSelect(Node):
    """Whole slices along an axis, picked by a vector of indexes."""

    type_name = "index_select"

    def __init__(self, x: Node, indexes: Node, axis: int) -> None:
        self.axis = axis
        shape = (*x.shape[:axis], *indexes.shape, *x.shape[axis + 1 :])
        super().__init__([x, indexes], shape, x.type)

    def content(self) -> tuple:
        return (self.axis,)

    def forward_ops(self) -> list[NodeOp]:
        x, indexes = self.children
        return [take.bind(self.value, x.value, indexes.value, self.axis)]

    def backward_ops(self) -> list[NodeOp | None]:
        x, indexes = self.children
        return [add_taken.bind(x.grad, self.grad, indexes.value, self.axis), None]

    def backward_reads(self) -> tuple[set[int], bool]:
        return {1}, False


class Gather(IndexSelect):
    """Element by element along an axis: value[i, j] = x[i, indexes[i, j]] for the last of two."""

    type_name = "gather"

    def __init__(self, x: Node, indexes: Node, axis: int) -> None:
        self.axis = axis
        Node.__init__(self, [x, indexes], indexes.shape, x.type)

    def forward_ops(self) -> list[NodeOp]:
        x, indexes = self.children
        return [gather_op.bind(self.value, x.value, indexes.value, self.axis)]

    def backward_ops(self) -> list[NodeOp | None]:
        x, indexes = self.children
        return [add_gathered.bind(x.grad, self.grad, indexes.value, self.axis), None]


class Scatter(Node):
    """A copy of child 0 in which elements picked along an axis are those of the source."""

    type_name = "scatter"

    def __init__(self, x: Node, indexes: Node, source: Node, axis: int) -> None:
        self.axis = axis
        super().__init__([x, indexes, source], x.shape, x.type)

    def content(self) -> tuple:
        return (self.axis,)

    def forward_ops(self) -> list[NodeOp]:
        x, indexes, source = self.children
        return [
            tensor.copy.bind(self.value, x.value),
            scatter_op.bind(self.value, source.value, indexes.value, self.axis),
        ]

    def backward_ops(self) -> list[NodeOp | None]:
        x, indexes, source = self.children
        picked = tensor.empty(source.shape, like=self.grad)

        def add_kept() -> None:
            """Overwritten elements have no gradient: it is put back as it was."""
            gather_op(picked, x.grad, indexes.value, self.axis)
            tensor.add(x.grad, self.grad)
            scatter_op(x.grad, picked, indexes.value, self.axis)

        def add_source() -> None:
            gather_op(picked, self.grad, indexes.value, self.axis)
            tensor.add(source.grad, picked)

        return [add_kept, None, add_source]

    def backward_reads(self) -> tuple[set[int], bool]:
        return {1}, False


def _as_indexes(x: Node, axis: int, indexes: Indexes) -> Node:
    if not isinstance(indexes, Node):
        indexes = x.graph.constant(np.asarray(indexes, np.int32))
    if indexes.type is not Type.INT32:
        raise ExpressionError(f"indexes must be int32, found {indexes.describe()}")
    if isinstance(indexes, Constant) and indexes.value.size:
        host = tensor.to_host(indexes.value)
        if host.min() < 0 or host.max() >= x.shape[axis]:
            raise ExpressionError(
                f"indexes from {host.min()} to {host.max()} do not fit axis {axis} of "
                f"{x.describe()}"
            )
    return indexes


def index_select(x: Node, axis: int, indexes: Indexes) -> Node:
    """Slices along an axis, in the order of a vector of indexes."""
    axis = normal_axis(axis, x.shape, "index_select")
    picked = _as_indexes(x, axis, indexes)
    if len(picked.shape) != 1:
        raise ExpressionError(f"index_select takes a vector of indexes, found {picked.describe()}")
    if isinstance(picked, Constant) and picked.shape[0] == x.shape[axis]:
        if np.array_equal(tensor.to_host(picked.value), np.arange(x.shape[axis])):
            return x
    return x.graph.add(IndexSelect(x, picked, axis))


def rows(x: Node, indexes: Indexes) -> Node:
    """Rows in the order of the indexes."""
    return index_select(x, 0, indexes)


def cols(x: Node, indexes: Indexes) -> Node:
    """Columns in the order of the indexes."""
    return index_select(x, -1, indexes)


def _check_picked(what: str, x: Node, axis: int, indexes: Node) -> None:
    fits = len(indexes.shape) == len(x.shape) and all(
        n == m or i == axis for i, (n, m) in enumerate(zip(indexes.shape, x.shape, strict=True))
    )
    if not fits:
        raise ExpressionError(
            f"{what} along axis {axis}: the indexes do not fit: {indexes.describe()}, "
            f"{x.describe()}"
        )


def gather(x: Node, axis: int, indexes: Indexes) -> Node:
    """Element by element along an axis; indexes have the other axes' sizes."""
    axis = normal_axis(axis, x.shape, "gather")
    picked = _as_indexes(x, axis, indexes)
    _check_picked("gather", x, axis, picked)
    return x.graph.add(Gather(x, picked, axis))


def scatter(x: Node, axis: int, indexes: Indexes, source: Node) -> Node:
    """x with the elements that `indexes` picks replaced by the source's; no place twice."""
    axis = normal_axis(axis, x.shape, "scatter")
    picked = _as_indexes(x, axis, indexes)
    _check_picked("scatter", x, axis, picked)
    if source.shape != picked.shape or source.type is not x.type:
        raise ExpressionError(
            f"scatter: the source {source.describe()} does not fit {picked.describe()} and "
            f"{x.describe()}"
        )
    return x.graph.add(Scatter(x, picked, source, axis))
