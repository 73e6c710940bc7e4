"""Softmax and log-softmax along an axis, computed on rows (another axis is swapped first)."""

from __future__ import annotations

from typing import ClassVar

from nnet3tools import tensor
from nnet3tools.expression.elementwise import apply
from nnet3tools.expression.help_text import described
from nnet3tools.expression.moves import contiguous, swap_axes
from nnet3tools.expression.node import Node, NodeOp
from nnet3tools.expression.shapes import ExpressionError, normal_axis
from nnet3tools.tensor import Array
from nnet3tools.tensor.formulas import Type
from nnet3tools.tensor.registry import Operator

MASKED = {Type.FLOAT16: -6.0e4, Type.FLOAT32: -3.0e38, Type.FLOAT64: -3.0e38}
"""The value of masked elements: its exp is 0, and sums of a few do not overflow."""


def rows_of(array: Array) -> Array:
    """View an array as a matrix whose rows are along the last axis; a copy if it has gaps."""
    if array.ndim == 1:
        return array[None, :]
    return array if array.ndim == 2 else array.reshape(-1, array.shape[-1])


class RowNode(Node):
    """Base class of nodes that transform each row of their operand.

    `operator` computes the value, `derivative` the operand's gradient, both on matrices of rows.
    """

    values_read = frozenset(), True
    overwrites = True
    operator: ClassVar[Operator]
    derivative: ClassVar[Operator]

    def __init__(self, x: Node) -> None:
        super().__init__([x], x.shape, x.type)

    def forward_ops(self) -> list[NodeOp]:
        return [self.operator.bind(rows_of(self.value), rows_of(self.children[0].value))]

    def backward_ops(self) -> list[NodeOp | None]:
        grad, value, adj = (rows_of(a) for a in (self.children[0].grad, self.value, self.grad))
        return [self.derivative.bind(grad, value, adj, add=0 not in self.children_to_set)]


class Softmax(RowNode):
    """A node with the softmax of each row."""

    type_name = "softmax"
    operator, derivative = tensor.softmax, tensor.softmax_backprop


class LogSoftmax(RowNode):
    """A node with the logarithm of the softmax of each row."""

    type_name = "log_softmax"
    operator, derivative = tensor.log_softmax, tensor.log_softmax_backprop


def _along(kind: type[RowNode], x: Node, axis: int) -> Node:
    if isinstance(axis, Node):
        raise ExpressionError(f"{kind.type_name}: a mask is given as mask=, found {axis!r} as axis")
    axis = normal_axis(axis, x.shape, kind.type_name)
    if not x.type.is_float:
        raise ExpressionError(f"{kind.type_name} of {x.describe()}: expected a float type")
    if axis != len(x.shape) - 1:
        return swap_axes(_along(kind, swap_axes(x, axis, -1), -1), axis, -1)
    return x.graph.add(kind(x if len(x.shape) <= 2 else contiguous(x)))


def _masked(x: Node, axis: int, mask: Node | None) -> Node:
    if mask is None:
        return x
    if not isinstance(mask, Node):
        raise ExpressionError(f"the mask of a softmax must be an expression, found {mask!r}")
    return apply("where", mask, x, MASKED.get(x.type, -3.0e38))


@described("value * (adj - sum(adj * value))", "as x; the mask broadcasts to it")
def softmax(x: Node, axis: int = -1, *, mask: Node | None = None) -> Node:
    """Softmax along an axis; elements where the mask is 0 get weight 0."""
    return _along(Softmax, _masked(x, axis, mask), axis)


@described("adj - exp(value) * sum(adj)", "as x; the mask broadcasts to it")
def log_softmax(x: Node, axis: int = -1, *, mask: Node | None = None) -> Node:
    """Log-softmax along an axis; elements where the mask is 0 are left out of the softmax."""
    return _along(LogSoftmax, _masked(x, axis, mask), axis)
