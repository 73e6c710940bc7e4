"""Selection of elements by indexes: gather, scatter, index_select, rows, cols.

Indexes are int32 or uint32 nodes or lists of non-negative numbers. Constants are checked when the
node is made, other indexes at each run on the host. On a device, an index out of range gives NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from nnet3tools import tensor
from nnet3tools.expression.elementwise import cast
from nnet3tools.expression.help_text import described
from nnet3tools.expression.joins import repeat
from nnet3tools.expression.leaves import Constant
from nnet3tools.expression.node import Node, NodeOp
from nnet3tools.expression.schedule import value_owner
from nnet3tools.expression.shapes import ExpressionError, normal_axis
from nnet3tools.tensor.formulas import Type
from nnet3tools.tensor.operators.gather import add_gathered, add_taken, take
from nnet3tools.tensor.operators.gather import gather as gather_op
from nnet3tools.tensor.operators.gather import scatter as scatter_op
from nnet3tools.tensor.registry import Operator, device_of

Indexes = Node | Sequence[int] | np.ndarray


class IndexSelect(Node):
    """A node with slices of its operand along an axis, selected by a vector of indexes."""

    type_name = "index_select"
    options = ("axis",)
    values_read = frozenset({1}), False
    operator: ClassVar[Operator] = take
    derivative: ClassVar[Operator] = add_taken

    def __init__(self, x: Node, indexes: Node, axis: int) -> None:
        self.axis = axis
        shape = (*x.shape[:axis], *indexes.shape, *x.shape[axis + 1 :])
        super().__init__([x, indexes], shape, x.type)

    def forward_ops(self) -> list[NodeOp]:
        x, indexes = self.children
        return [
            *_range_checks(x, indexes, self.axis),
            self.operator.bind(self.value, x.value, indexes.value, self.axis),
        ]

    def backward_ops(self) -> list[NodeOp | None]:
        x, indexes = self.children
        return [self.derivative.bind(x.grad, self.grad, indexes.value, self.axis), None]


class Gather(IndexSelect):
    """A node with indexed elements along an axis, such as value[i, j] = x[i, indexes[i, j]]."""

    type_name = "gather"
    operator = gather_op
    derivative = add_gathered

    def __init__(self, x: Node, indexes: Node, axis: int) -> None:
        self.axis = axis
        Node.__init__(self, [x, indexes], indexes.shape, x.type)


class Scatter(Node):
    """A copy of child 0 whose elements at indexes (child 1) along `axis` are those of child 2."""

    type_name = "scatter"
    options = ("axis",)
    values_read = frozenset({1}), False

    def __init__(self, x: Node, indexes: Node, source: Node, axis: int) -> None:
        self.axis = axis
        super().__init__([x, indexes, source], x.shape, x.type)

    def forward_ops(self) -> list[NodeOp]:
        x, indexes, source = self.children
        return [
            *_range_checks(x, indexes, self.axis),
            tensor.copy.bind(self.value, x.value),
            scatter_op.bind(self.value, source.value, indexes.value, self.axis),
        ]

    def backward_ops(self) -> list[NodeOp | None]:
        x, indexes, source = self.children
        picked = tensor.empty(source.shape, like=self.grad)

        def add_kept() -> None:
            """Add this node's gradient to that of child 0, except at the replaced elements."""
            gather_op(picked, x.grad, indexes.value, self.axis)
            tensor.add(x.grad, self.grad)
            scatter_op(x.grad, picked, indexes.value, self.axis)

        def add_source() -> None:
            gather_op(picked, self.grad, indexes.value, self.axis)
            tensor.add(source.grad, picked)

        return [add_kept, None, add_source]


def as_indexes(x: Node, axis: int, indexes: Indexes, called: str = "indexes") -> Node:
    """Convert indexes along an axis of x to an int32 node; errors name them `called`.

    Constants must be in range: ExpressionError otherwise.
    """
    if not isinstance(indexes, Node):
        host = np.asarray(indexes)
        if host.size and host.dtype.kind not in "iu":
            raise ExpressionError(f"{called} must be integers, found {host.dtype}: {indexes!r}")
        indexes = x.graph.constant(host, None if host.size else Type.INT32)
    if indexes.type not in (Type.INT32, Type.UINT32):
        raise ExpressionError(f"{called} must be int32 or uint32, found {indexes.describe()}")
    if isinstance(indexes, Constant):
        _check_range(tensor.to_host(indexes.value), axis, x, called)
    return cast(indexes, Type.INT32)


def _check_range(indexes: np.ndarray, axis: int, x: Node, called: str = "indexes") -> None:
    if indexes.size and (indexes.min() < 0 or indexes.max() >= x.shape[axis]):
        raise ExpressionError(
            f"{called} from {indexes.min()} to {indexes.max()} do not fit axis {axis} of "
            f"{x.describe()}"
        )


def _range_checks(x: Node, indexes: Node, axis: int) -> list[NodeOp]:
    """Host operations that check the range of indexes, for indexes that may change between runs."""
    known = value_owner(indexes)
    sorted_out = known.type_name == "sort_indexes" and known.children[0].shape == x.shape
    if isinstance(known, Constant) or sorted_out or device_of(indexes.value) != "numpy":
        return []
    host = indexes.value
    return [lambda: _check_range(host, axis, x)]


@described("adj added at the indexes", "x (.., n, ..), indexes (k), value (.., k, ..)")
def index_select(x: Node, axis: int, indexes: Indexes) -> Node:
    """The slices of x along an axis at `indexes`, a vector, in its order."""
    axis = normal_axis(axis, x.shape, "index_select")
    picked = as_indexes(x, axis, indexes)
    if len(picked.shape) != 1:
        raise ExpressionError(f"index_select takes a vector of indexes, found {picked.describe()}")
    if isinstance(picked, Constant) and picked.shape[0] == x.shape[axis]:
        if np.array_equal(tensor.to_host(picked.value), np.arange(x.shape[axis])):
            return x
    return x.graph.add(IndexSelect(x, picked, axis))


@described("adj added to the rows at the indexes", "x (n, d), indexes (k), value (k, d)")
def rows(x: Node, indexes: Indexes) -> Node:
    """The rows of the matrix x at `indexes`, in this order."""
    return index_select(x, 0, indexes)


@described("adj added to the columns at the indexes", "x (n, d), indexes (k), value (n, k)")
def cols(x: Node, indexes: Indexes) -> Node:
    """The columns of the matrix x at `indexes`, in this order."""
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


@described("adj added at the indexes", "x (.., n, ..), indexes and value (.., k, ..)")
def gather(x: Node, axis: int, indexes: Indexes) -> Node:
    """Elements of x at `indexes` along an axis; other axes of `indexes` are those of x, or 1."""
    axis = normal_axis(axis, x.shape, "gather")
    picked = as_indexes(x, axis, indexes)
    if len(picked.shape) == len(x.shape):
        for i, n in enumerate(x.shape):
            picked = picked if i == axis or picked.shape[i] != 1 else repeat(picked, n, i)
    _check_picked("gather", x, axis, picked)
    return x.graph.add(Gather(x, picked, axis))


@described(
    "adj by x, but 0 at the indexes; adj at the indexes by the source",
    "x (.., n, ..), indexes and source (.., k, ..), value as x",
)
def scatter(x: Node, axis: int, indexes: Indexes, source: Node) -> Node:
    """A copy of x with the elements at distinct `indexes` along `axis` set to those of `source`."""
    axis = normal_axis(axis, x.shape, "scatter")
    picked = as_indexes(x, axis, indexes)
    _check_picked("scatter", x, axis, picked)
    if source.shape != picked.shape or source.type is not x.type:
        raise ExpressionError(
            f"scatter: the source {source.describe()} does not fit {picked.describe()} and "
            f"{x.describe()}"
        )
    return x.graph.add(Scatter(x, picked, source, axis))
