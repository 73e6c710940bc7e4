"""Reductions along an axis, which keeps size 1; each kind defines its value and derivative."""

from __future__ import annotations

import functools
from typing import ClassVar

from nnet3tools import tensor
from nnet3tools.expression.elementwise import cast
from nnet3tools.expression.gradients import add_term, parse_term
from nnet3tools.expression.help_text import described
from nnet3tools.expression.moves import flatten
from nnet3tools.expression.node import Node, NodeOp
from nnet3tools.expression.shapes import ExpressionError, normal_axis, shape_text
from nnet3tools.tensor.call import in_turn
from nnet3tools.tensor.formulas import Type


class Reduce(Node):
    """Base class of nodes that reduce the elements of child 0 along an axis, which keeps size 1.

    The value is `reduction` (such as "sum") of `formula`, in which `_1` is the operand.
    `derivative` is the gradient's formula. If `shrinks`, the reduction of one element is the
    element.
    """

    options = ("axis",)
    reduction: ClassVar[str]
    """Name of the reduction in tensor.aggregate."""
    formula: ClassVar[str] = "_1"
    """The formula that is reduced; `_1` is the operand."""
    derivative: ClassVar[str]
    """The term of the gradient, a formula of adj, a, value, and b = 1 / n."""
    overwrites = True
    shrinks: ClassVar[bool] = True
    """Whether the reduction of a single element is the element."""

    def __init__(self, x: Node, axis: int) -> None:
        self.axis = axis
        shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        super().__init__([x], shape, x.type if x.type.is_float else Type.FLOAT32)

    def forward_ops(self) -> list[NodeOp]:
        return [
            _aggregate(self.formula, self.reduction, self.axis).bind(
                self.value, self.children[0].value
            )
        ]

    def backward_ops(self) -> list[NodeOp | None]:
        x, scale = self.children[0], 1.0 / max(1, self.children[0].shape[self.axis])
        arrays = {"adj": self.grad, "a": x.value, "value": self.value, "b": scale}
        return [add_term(x.grad, self.derivative, arrays, 0 in self.children_to_set)]

    def backward_reads(self) -> tuple[set[int], bool]:
        names, _ = parse_term(self.derivative)
        return ({0} if "a" in names else set()), "value" in names


@functools.cache
def _aggregate(formula: str, reduction: str, axis: int) -> tensor.Aggregate:
    return tensor.aggregate(formula, reduction, axis)


class Sum(Reduce):
    """A node with the sum along an axis."""

    type_name, reduction, derivative = "sum", "sum", "adj"


class Mean(Reduce):
    """A node with the mean along an axis."""

    type_name, reduction, derivative = "mean", "mean", "adj * b"


class Max(Reduce):
    """A node with the maximum along an axis; all elements equal to it get the gradient."""

    type_name, reduction, derivative = "reduce_max", "max", "where(a == value, adj, 0)"


class Min(Reduce):
    """A node with the minimum along an axis; all elements equal to it get the gradient."""

    type_name, reduction, derivative = "reduce_min", "min", "where(a == value, adj, 0)"


class Prod(Reduce):
    """A node with the product along an axis."""

    type_name, reduction = "prod", "prod"
    # b: product of the non-zero elements; c: number of zeros
    derivative = "adj * b * where(a == 0, c == 1, where(c == 0, 1 / where(a == 0, 1, a), 0))"

    def backward_ops(self) -> list[NodeOp | None]:
        x = self.children[0]
        others, zeros = (tensor.empty(self.shape, like=self.grad) for _ in range(2))
        arrays = {"adj": self.grad, "a": x.value, "b": others, "c": zeros}
        return [
            in_turn(
                [
                    _aggregate("where(_1 == 0, 1, _1)", "prod", self.axis).bind(others, x.value),
                    _aggregate("_1 == 0", "sum", self.axis).bind(zeros, x.value),
                    add_term(x.grad, self.derivative, arrays, 0 in self.children_to_set),
                ]
            )
        ]


class LogSumExp(Reduce):
    """A node with the logarithm of the sum of exp(x) along an axis."""

    type_name, reduction, derivative = "logsumexp", "logsumexp", "adj * exp(a - value)"


class MeanSquare(Reduce):
    """A node with the mean of the squares along an axis."""

    type_name, reduction, formula = "mean_square", "mean", "sqr(_1)"
    derivative, shrinks = "2 * adj * a * b", False


class RootMeanSquare(Reduce):
    """A node with the square root of the mean of the squares along an axis."""

    type_name, reduction, formula = "rms", "mean", "sqr(_1)"
    # the derivative at 0 is defined as 0
    derivative, shrinks = "adj * a * b / where(value == 0, 1, value)", False

    def forward_ops(self) -> list[NodeOp]:
        return [*super().forward_ops(), _sqrt.bind(self.value)]


_sqrt = tensor.element("_1 = sqrt(_1)")


class ScalarProduct(Node):
    """A node with the sum of a * b along an axis, without storing a * b."""

    type_name, overwrites = "scalar_product", True
    options = ("axis",)
    values_read = frozenset({0, 1}), False

    def __init__(self, a: Node, b: Node, axis: int) -> None:
        self.axis = axis
        super().__init__([a, b], (*a.shape[:axis], 1, *a.shape[axis + 1 :]), a.type)

    def forward_ops(self) -> list[NodeOp]:
        a, b = self.children
        return [tensor.aggregate("_1 * _2", "sum", self.axis).bind(self.value, a.value, b.value)]

    def backward_ops(self) -> list[NodeOp | None]:
        a, b = self.children
        return [
            add_term(
                mine.grad,
                "adj * a",
                {"adj": self.grad, "a": other.value},
                i in self.children_to_set,
            )
            if mine.trainable
            else None
            for i, (mine, other) in enumerate(((a, b), (b, a)))
        ]


def reduce(kind: type[Reduce], x: Node, axis: int | None) -> Node:
    """The reduction `kind` of x along an axis; if `axis` is None, of all elements, shape (1)."""
    if axis is None:
        return reduce(kind, flatten(x), 0)
    axis = normal_axis(axis, x.shape, kind.type_name)
    if x.shape[axis] == 1 and kind.shrinks and x.type.is_float:
        return x
    if x.shape[axis] == 0 and kind.reduction in ("max", "min", "logsumexp"):
        raise ExpressionError(f"{kind.type_name} of nothing: {x.describe()} along axis {axis}")
    return x.graph.add(kind(x, axis))


_REDUCED = "x (.., n, ..), value (.., 1, ..); (1) if `axis` is None"


@described("adj", _REDUCED)
def sum_(x: Node, axis: int | None = 0) -> Node:
    """The sum along an axis, or of all elements if `axis` is None."""
    return reduce(Sum, x, axis)


@described("adj / n", _REDUCED)
def mean(x: Node, axis: int | None = 0) -> Node:
    """The mean along an axis, or of all elements if `axis` is None."""
    return reduce(Mean, x, axis)


average = mean


@described("adj at all elements equal to the value, 0 elsewhere", _REDUCED)
def max_(x: Node, axis: int | None = 0) -> Node:
    """The maximum along an axis, or of all elements if `axis` is None."""
    return reduce(Max, x, axis)


@described("adj at all elements equal to the value, 0 elsewhere", _REDUCED)
def min_(x: Node, axis: int | None = 0) -> Node:
    """The minimum along an axis, or of all elements if `axis` is None."""
    return reduce(Min, x, axis)


@described("adj * the product of the other elements", _REDUCED)
def prod(x: Node, axis: int | None = 0) -> Node:
    """The product along an axis, or of all elements if `axis` is None."""
    return reduce(Prod, x, axis)


@described("adj * exp(x - value)", _REDUCED)
def logsumexp(x: Node, axis: int | None = 0) -> Node:
    """log(sum of exp) along an axis, or of all elements if `axis` is None."""
    return reduce(LogSumExp, x, axis)


def _centred(x: Node, axis: int | None) -> Node:
    return (x if x.type.is_float else cast(x, Type.FLOAT32)) - mean(x, axis)


@described("adj * 2 (x - mean) / n", _REDUCED)
def var(x: Node, axis: int | None = 0) -> Node:
    """The variance (divisor n) along an axis, or of all elements if `axis` is None."""
    return reduce(MeanSquare, _centred(x, axis), axis)


@described("adj * (x - mean) / (n * value); 0 where the value is 0", _REDUCED)
def std(x: Node, axis: int | None = 0) -> Node:
    """The standard deviation (divisor n) along an axis, or of all elements if `axis` is None."""
    return reduce(RootMeanSquare, _centred(x, axis), axis)


@described("adj * b by a, adj * a by b", "a and b (.., n, ..), value (.., 1, ..)")
def scalar_product(a: Node, b: Node, axis: int = 0) -> Node:
    """The sum of a * b along an axis."""
    if a.shape != b.shape or a.type is not b.type or not a.type.is_float:
        return sum_(a * b, axis)
    axis = normal_axis(axis, a.shape, f"scalar_product of {shape_text(a.shape)}")
    return a.graph.add(ScalarProduct(a, b, axis))


@described(
    "adj * weights / W by x, adj * (x - value) / W by the weights; W is the sum of the weights",
    "x and weights (.., n, ..), value (.., 1, ..)",
)
def weighted_average(x: Node, weights: Node, axis: int = 0) -> Node:
    """The average of x along an axis with weights, which need not sum to 1."""
    return scalar_product(x, weights, axis) / sum_(weights, axis)
