"""Matrix products: dot, batched dot, affine."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnet3tools import tensor
from nnet3tools.expression.elementwise import apply
from nnet3tools.expression.gradients import add_reduced
from nnet3tools.expression.help_text import described
from nnet3tools.expression.joins import repeat
from nnet3tools.expression.losses import dropout
from nnet3tools.expression.moves import contiguous, reshape, transpose
from nnet3tools.expression.node import Node, NodeOp
from nnet3tools.expression.shapes import ExpressionError, broadcast
from nnet3tools.tensor.formulas import Placeholder


class Dot(Node):
    """A node with the product scalar * A B of matrices or stacks, each perhaps transposed."""

    type_name, overwrites = "dot", True
    options = "trans_a", "trans_b", "scalar"

    def __init__(
        self, a: Node, b: Node, trans_a: bool, trans_b: bool, scalar: float, *more: Node
    ) -> None:
        self.trans_a, self.trans_b, self.scalar = trans_a, trans_b, scalar
        rows = a.shape[-1] if trans_a else a.shape[-2]
        cols = b.shape[-2] if trans_b else b.shape[-1]
        super().__init__([a, b, *more], (*a.shape[:-2], rows, cols), a.type)

    def forward_ops(self) -> list[NodeOp]:
        a, b = self.children[:2]
        return [
            tensor.prod.bind(
                self.value, a.value, b.value, self.trans_a, self.trans_b, alpha=self.scalar
            )
        ]

    def backward_ops(self) -> list[NodeOp | None]:
        a, b, adj = self.children[0].value, self.children[1].value, self.grad
        by_a = (b, adj, self.trans_b, True) if self.trans_a else (adj, b, False, not self.trans_b)
        by_b = (adj, a, True, self.trans_a) if self.trans_b else (a, adj, not self.trans_a, False)
        ops: list[NodeOp | None] = [None, None]
        for i, product in enumerate((by_a, by_b)):
            if self.children[i].trainable:
                grad, beta = self.children[i].grad, 0.0 if i in self.children_to_set else 1.0
                ops[i] = tensor.prod.bind(grad, *product, self.scalar, beta)
        return ops

    def backward_reads(self) -> tuple[set[int], bool]:
        a, b = self.children[:2]
        return ({1} if a.trainable else set()) | ({0} if b.trainable else set()), False


class BatchedDot(Dot):
    """A node with the products of corresponding matrices of two stacks."""

    type_name = "bdot"


class Affine(Dot):
    """A node with the product scalar * A B plus a bias, which is broadcast over rows."""

    type_name = "affine"

    def forward_ops(self) -> list[NodeOp]:
        return [*super().forward_ops(), _add.bind(self.value, self.children[2].value)]

    def backward_ops(self) -> list[NodeOp | None]:
        bias, add = self.children[2], None
        if bias.trainable:
            add = add_reduced(bias.grad, Placeholder(1), [self.grad], 2 in self.children_to_set)
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


@described("scalar * adj B' by A, scalar * A' adj by B", "a (.., n, k), b (k, m), value (.., n, m)")
def dot(
    a: Node, b: Node, trans_a: bool = False, trans_b: bool = False, scalar: float = 1.0
) -> Node:
    """scalar * A B, where A and B are `a` and `b`, transposed if `trans_a` or `trans_b`."""
    _check("dot", [a, b], _inner(a, b, trans_a, trans_b) and _is_matrix(b))
    rows, trans_a = _rows(a, trans_a)
    made = a.graph.add(Dot(rows, _matrix(b), trans_a, trans_b, float(scalar)))
    return _with_lead(made, a)


def _is_matrix(b: Node) -> bool:
    """Whether all axes of a node except the last two have size 1."""
    return math.prod(b.shape[:-2]) == 1


def _matrix(b: Node) -> Node:
    return b if len(b.shape) == 2 else reshape(b, b.shape[-2:])


def _rows(a: Node, trans: bool) -> tuple[Node, bool]:
    """(`a` as a matrix, a stack's matrices one below the other; whether the product transposes it).

    With `trans`, each matrix of a stack is transposed here, but a single matrix by the product.
    """
    if len(a.shape) == 2:
        return a, trans
    a = transpose(a) if trans else a
    return reshape(a, (math.prod(a.shape[:-1]), a.shape[-1])), False


def _with_lead(made: Node, a: Node) -> Node:
    if len(a.shape) == 2:
        return made
    lead = a.shape[:-2]
    rows = made.shape[0] // math.prod(lead) if math.prod(lead) else a.shape[-2]
    return reshape(made, (*lead, rows, made.shape[-1]))


@described(
    "scalar * adj B' by A, scalar * A' adj by B, summed over broadcast axes",
    "a (.., n, k), b (.., k, m), value (.., n, m)",
)
def bdot(
    a: Node, b: Node, trans_a: bool = False, trans_b: bool = False, scalar: float = 1.0
) -> Node:
    """scalar * A B for matrices A of a stack and B of another; their other axes are broadcast.

    A and B are transposed first if `trans_a` and `trans_b`.
    """
    _check("bdot", [a, b], _inner(a, b, trans_a, trans_b))
    lead = broadcast([a.shape[:-2], b.shape[:-2]])
    _check("bdot", [a, b], lead is not None)
    assert lead is not None
    batch, parts = math.prod(lead), []
    for x in (a, b):
        full = reshape(x, (1,) * (len(lead) + 2 - len(x.shape)) + x.shape)
        for axis, n in enumerate(lead):
            full = full if full.shape[axis] == n else repeat(full, n, axis)
        parts.append(contiguous(reshape(full, (batch, *x.shape[-2:]))))
    made = a.graph.add(BatchedDot(parts[0], parts[1], trans_a, trans_b, float(scalar)))
    return reshape(made, (*lead, *made.shape[-2:]))


@described("as dot; the sum of the rows of adj by bias", "a (.., n, k), b (k, m), value (.., n, m)")
def affine(
    a: Node, b: Node, bias: Node, trans_a: bool = False, trans_b: bool = False, scalar: float = 1.0
) -> Node:
    """scalar * A B (transposed if `trans_a`, `trans_b`) plus a bias: (columns) or (1, columns)."""
    fits = _inner(a, b, trans_a, trans_b) and _is_matrix(b)
    cols = b.shape[-2 if trans_b else -1] if fits else -1
    fits = fits and bool(bias.shape) and math.prod(bias.shape) == bias.shape[-1] == cols
    _check("affine", [a, b, bias], fits)
    rows, trans_a = _rows(a, trans_a)
    row = bias if len(bias.shape) <= 2 else reshape(bias, (1, cols))
    return _with_lead(
        a.graph.add(Affine(rows, _matrix(b), trans_a, trans_b, float(scalar), row)), a
    )


@described("as affine, of adj * mask where value > 0", "a (.., n, k), b (k, m), value (.., n, m)")
def affine_relu_dropout(a: Node, b: Node, bias: Node, p: float = 0.0) -> Node:
    """Dropout of rate p, one mask (n, m) for all, of relu(a b + bias); none in inference graphs."""
    made = apply("relu", affine(a, b, bias))
    return made if a.graph.inference else dropout(made, p, (-2, -1))
