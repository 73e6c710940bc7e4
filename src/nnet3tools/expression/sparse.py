"""Products with sparse matrices in compressed rows (CSR); these are data: only b has a gradient."""

from __future__ import annotations

from nnet3tools import tensor
from nnet3tools.expression.leaves import Constant
from nnet3tools.expression.node import Expr, NodeOp
from nnet3tools.expression.shapes import ExpressionError, Shape, shape_text
from nnet3tools.tensor.csr import csr_dot as csr_dot_op
from nnet3tools.tensor.functional import Type

__all__ = ["csr_dot", "dot_csr"]


class CsrDot(Expr):
    """op(S) b, S sparse; children values, indexes, offsets, b."""

    type_name = "csr_dot"

    def __init__(self, parts: list[Expr], b: Expr, shape: Shape, trans: bool) -> None:
        self.trans = trans
        super().__init__([*parts, b], shape, b.type)

    def content(self) -> tuple:
        return self.trans, self.shape

    def forward_ops(self) -> list[NodeOp]:
        values, indexes, offsets, b = (c.value for c in self.children)
        return [csr_dot_op.bind(self.value, values, indexes, offsets, b, self.trans)]

    def backward_ops(self) -> list[NodeOp | None]:
        values, indexes, offsets = (c.value for c in self.children[:3])
        b, adj = self.children[3], self.grad
        if self.children[0].trainable:
            raise ExpressionError(f"{self.describe()} has no gradient by its sparse operand")
        back = csr_dot_op.bind(b.grad, values, indexes, offsets, adj, not self.trans, beta=1.0)
        return [None, None, None, back]

    def backward_reads(self) -> tuple[set[int], bool]:
        return {0, 1, 2}, False


class DotCsr(CsrDot):
    """b op(S), computed as the transpose of op(S)' b'."""

    type_name = "dot_csr"

    def forward_ops(self) -> list[NodeOp]:
        values, indexes, offsets, b = (c.value for c in self.children)
        return [csr_dot_op.bind(self.value.T, values, indexes, offsets, b.T, not self.trans)]

    def backward_ops(self) -> list[NodeOp | None]:
        values, indexes, offsets = (c.value for c in self.children[:3])
        b, adj = self.children[3], self.grad
        if self.children[0].trainable:
            raise ExpressionError(f"{self.describe()} has no gradient by its sparse operand")
        back = csr_dot_op.bind(b.grad.T, values, indexes, offsets, adj.T, self.trans, beta=1.0)
        return [None, None, None, back]


def _check(what: str, shape: Shape, parts: list[Expr], b: Expr, inner: int, size: int) -> None:
    values, indexes, offsets = parts
    fits = len(b.shape) == 2 and inner == size and offsets.shape == (shape[0] + 1,)
    fits = fits and values.shape == indexes.shape and len(values.shape) == 1
    fits = fits and indexes.type is offsets.type is Type.INT32 and values.type is b.type
    if not fits:
        shown = ", ".join(o.describe() for o in (*parts, b))
        raise ExpressionError(
            f"{what}: a sparse matrix {shape_text(shape)} and the operands do not fit together: "
            f"{shown}"
        )
    if not isinstance(indexes, Constant) or not isinstance(offsets, Constant):
        raise ExpressionError(f"{what}: the sparse matrix's indexes and offsets must be constants")
    starts, columns = tensor.to_host(offsets.value), tensor.to_host(indexes.value)
    bad = starts[0] != 0 or starts[-1] != len(columns) or (starts[1:] < starts[:-1]).any()
    if bad or (columns.size and (columns.min() < 0 or columns.max() >= shape[1])):
        raise ExpressionError(f"{what}: indexes or offsets do not fit {shape_text(shape)}")


def csr_dot(
    shape: Shape, values: Expr, indexes: Expr, offsets: Expr, b: Expr, trans: bool = False
) -> Expr:
    """op(S) b for S of this shape: values, column indexes, row offsets."""
    rows, inner = (shape[1], shape[0]) if trans else shape
    parts = [values, indexes, offsets]
    _check("csr_dot", shape, parts, b, inner, b.shape[0])
    return b.graph.add(CsrDot(parts, b, (rows, b.shape[1]), trans))


def dot_csr(
    b: Expr, shape: Shape, values: Expr, indexes: Expr, offsets: Expr, trans: bool = False
) -> Expr:
    """b op(S) for S of this shape."""
    inner, cols = (shape[1], shape[0]) if trans else shape
    parts = [values, indexes, offsets]
    _check("dot_csr", shape, parts, b, inner, b.shape[-1])
    return b.graph.add(DotCsr(parts, b, (b.shape[0], cols), trans))
