"""Matrix products: dot, batched dot, affine."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnet3tools import tensor
from nnet3tools.expression.gradients import add_reduced
from nnet3tools.expression.joins import repeat
from nnet3tools.expression.moves import contiguous, reshape
from nnet3tools.expression.node import Node, NodeOp
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.tensor.functional import Placeholder

__all__ = ["affine", "bdot", "dot"]


class Dot(Node):
    """scalar op(a) op(b) of matrices, or of stacks of matrices with equal numbers of them."""

    type_name, overwrites = "dot", True

    def __init__(
        self, a: Node, b: Node, trans_a: bool, trans_b: bool, scalar: float, *more: Node
    ) -> None:
        self.trans_a, self.trans_b, self.scalar = trans_a, trans_b, scalar
        rows = a.shape[-1] if trans_a else a.shape[-2]
        cols = b.shape[-2] if trans_b else b.shape[-1]
        super().__init__([a, b, *more], (*a.shape[:-2], rows, cols), a.type)

    def content(self) -> tuple:
        return self.trans_a, self.trans_b, self.scalar

    def forward_ops(self) -> list[NodeOp]:
        a, b = self.children[:2]
        return [
            tensor.prod.bind(
                self.value, a.value, b.value, self.trans_a, self.trans_b, alpha=self.scalar
            )
        ]

    def backward_ops(self) -> list[NodeOp | None]:
        a, b, adj, ops = self.children[0], self.children[1], self.grad, list[NodeOp | None]()
        options = {"alpha": self.scalar, "beta": 0.0 if 0 in self.fresh else 1.0}
        if not a.trainable:
            ops.append(None)
        elif self.trans_a:
            ops.append(tensor.prod.bind(a.grad, b.value, adj, self.trans_b, True, **options))
        else:
            ops.append(tensor.prod.bind(a.grad, adj, b.value, False, not self.trans_b, **options))
        options = {"alpha": self.scalar, "beta": 0.0 if 1 in self.fresh else 1.0}
        if not b.trainable:
            ops.append(None)
        elif self.trans_b:
            ops.append(tensor.prod.bind(b.grad, adj, a.value, True, self.trans_a, **options))
        else:
            ops.append(tensor.prod.bind(b.grad, a.value, adj, not self.trans_a, False, **options))
        return ops

    def backward_reads(self) -> tuple[set[int], bool]:
        a, b = self.children[:2]
        return ({1} if a.trainable else set()) | ({0} if b.trainable else set()), False


class BatchedDot(Dot):
    """Products of the matrices of two stacks, one by one."""

    type_name = "bdot"


class Affine(Dot):
    """scalar op(a) op(b) + bias, the bias broadcast over rows."""

    type_name = "affine"

    def forward_ops(self) -> list[NodeOp]:
        return [*super().forward_ops(), _add.bind(self.value, self.children[2].value)]

    def backward_ops(self) -> list[NodeOp | None]:
        bias, add = self.children[2], None
        if bias.trainable:
            add = add_reduced(bias.grad, Placeholder(1), [self.grad], 2 in self.fresh)
        return [*super().backward_ops(), add]


_add = tensor.element("_1 = _1 + _2")


def _check(what: str, operands: Sequence[Node], fits: bool) -> None:
    if not fits or len({o.type for o in operands}) > 1 or not operands[0].type.is_float:
        shown = ", ".join(o.describe() for o in operands)
        raise ExpressionError(f"{what}: the operands do not fit together: {shown}")


def _inner(a: Node, b: Node, trans_a: bool, trans_b: bool) -> bool:
    if len(a.shape) < 2 or len(b.shape) < 2:
        return False
    return a.shape[-2 if trans_a else -1] == b.shape[-1 if trans_b else -2]


def dot(
    a: Node, b: Node, trans_a: bool = False, trans_b: bool = False, scalar: float = 1.0
) -> Node:
    """scalar op(a) op(b); b is a matrix, and leading axes of a (not transposed) are kept."""
    fits = _inner(a, b, trans_a, trans_b) and len(b.shape) == 2
    _check("dot", [a, b], fits and (len(a.shape) == 2 or not trans_a))
    rows = reshape(a, (math.prod(a.shape[:-1]), a.shape[-1])) if len(a.shape) > 2 else a
    made = a.graph.add(Dot(rows, b, trans_a, trans_b, float(scalar)))
    return made if len(a.shape) == 2 else reshape(made, (*a.shape[:-1], made.shape[-1]))


def bdot(
    a: Node, b: Node, trans_a: bool = False, trans_b: bool = False, scalar: float = 1.0
) -> Node:
    """Products of stacks of matrices; leading axes are equal, or one operand is a single matrix."""
    _check("bdot", [a, b], _inner(a, b, trans_a, trans_b))
    lead_a, lead_b = a.shape[:-2], b.shape[:-2]
    lead = lead_a if math.prod(lead_a) != 1 else lead_b
    _check("bdot", [a, b], all(x == lead or math.prod(x) == 1 for x in (lead_a, lead_b)))
    batch, parts = math.prod(lead), []
    for x in (a, b):
        flat = contiguous(reshape(x, (-1 if x.shape[-1] * x.shape[-2] else 1, *x.shape[-2:])))
        parts.append(flat if flat.shape[0] == batch else repeat(flat, batch, 0))
    made = a.graph.add(BatchedDot(parts[0], parts[1], trans_a, trans_b, float(scalar)))
    return reshape(made, (*lead, *made.shape[-2:]))


def affine(
    a: Node,
    b: Node,
    bias: Node,
    trans_a: bool = False,
    trans_b: bool = False,
    scalar: float = 1.0,
) -> Node:
    """scalar op(a) op(b) + bias, a and b matrices, bias (cols) or (1, cols)."""
    fits = _inner(a, b, trans_a, trans_b) and len(a.shape) == len(b.shape) == 2
    cols = b.shape[0 if trans_b else 1] if fits else -1
    _check("affine", [a, b, bias], fits and bias.shape in ((cols,), (1, cols)))
    return a.graph.add(Affine(a, b, trans_a, trans_b, float(scalar), bias))
