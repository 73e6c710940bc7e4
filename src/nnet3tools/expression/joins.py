"""Nodes that combine several operands: concatenate, stack, repeat."""

from __future__ import annotations

from collections.abc import Sequence

from nnet3tools import tensor
from nnet3tools.expression.help_text import described
from nnet3tools.expression.moves import add_copy, reshape
from nnet3tools.expression.node import Node, NodeOp, common_type
from nnet3tools.expression.shapes import ExpressionError, normal_axis, whole_number
from nnet3tools.tensor.call import in_turn
from nnet3tools.tensor.operators.concatenate import parts_along

_MAX_REPEATS = 1 << 16


class Concatenate(Node):
    """A node with its operands concatenated along an axis."""

    type_name, overwrites = "concatenate", True
    options = ("axis",)
    values_read = frozenset(), False

    def __init__(self, parts: Sequence[Node], axis: int) -> None:
        self.axis = axis
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        super().__init__(parts, tuple(shape), common_type(self.type_name, parts))

    def forward_ops(self) -> list[NodeOp]:
        return [tensor.concatenate.bind(self.value, [c.value for c in self.children], self.axis)]

    def backward_ops(self) -> list[NodeOp | None]:
        count = len(self.children)
        if all(c.trainable for c in self.children) and len(self.children_to_set) in (0, count):
            operator = tensor.split if self.children_to_set else tensor.add_split
            step = operator.bind(self.grad, [c.grad for c in self.children], self.axis)
            return [step, *[in_turn(())] * (count - 1)]
        sizes = [child.shape[self.axis] for child in self.children]
        parts = zip(parts_along(self.grad, sizes, self.axis), self.children, strict=True)
        return [
            add_copy(child.grad, part, i in self.children_to_set) if child.trainable else None
            for i, (part, child) in enumerate(parts)
        ]


@described("for each part, its section of adj", "parts (.., n_i, ..), value (.., sum of n_i, ..)")
def concatenate(parts: Sequence[Node], axis: int = 0) -> Node:
    """Concatenate nodes along an axis; sizes along other axes must be equal."""
    if not parts:
        raise ExpressionError("concatenate of nothing")
    if len(parts) == 1:
        return parts[0]
    axis = normal_axis(axis, parts[0].shape, "concatenate")
    for p in parts:
        fits = len(p.shape) == len(parts[0].shape) and all(
            n == m or i == axis
            for i, (n, m) in enumerate(zip(p.shape, parts[0].shape, strict=True))
        )
        if not fits:
            shown = ", ".join(q.describe() for q in parts)
            raise ExpressionError(f"cannot concatenate along axis {axis}: {shown}")
    return parts[0].graph.add(Concatenate(parts, axis))


@described("for each part, its slice of adj", "k parts (..), value (.., k, ..)")
def stack(parts: Sequence[Node], axis: int = 0) -> Node:
    """Stack nodes of equal shape along a new axis."""
    if not parts:
        raise ExpressionError("stack of nothing")
    axis = normal_axis(axis, (1, *parts[0].shape), "stack")
    if any(p.shape != parts[0].shape for p in parts):
        shown = ", ".join(q.describe() for q in parts)
        raise ExpressionError(f"cannot stack nodes of different shapes: {shown}")
    return concatenate([reshape(p, (*p.shape[:axis], 1, *p.shape[axis:])) for p in parts], axis)


@described("the sum of the sections of adj", "x (.., n, ..), value (.., repeats * n, ..)")
def repeat(x: Node, repeats: int, axis: int = 0) -> Node:
    """Concatenate a node with itself `repeats` times along an axis."""
    repeats = whole_number(repeats, "repeat")
    if not 1 <= repeats <= _MAX_REPEATS:
        raise ExpressionError(f"cannot repeat {x.describe()} {repeats} times")
    return concatenate([x] * repeats, axis)
