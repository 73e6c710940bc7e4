"""Products with sparse matrices in compressed rows (CSR): fixed places, values of any kind."""

from __future__ import annotations

import numpy as np

from nnet3tools import tensor
from nnet3tools.expression.gradients import in_order
from nnet3tools.expression.leaves import Constant
from nnet3tools.expression.node import Node, NodeOp
from nnet3tools.expression.shapes import ExpressionError, Shape, shape_text
from nnet3tools.tensor import Array
from nnet3tools.tensor.csr import csr_dot as csr_dot_op
from nnet3tools.tensor.functional import Type
from nnet3tools.tensor.gather import take

__all__ = ["csr_dot", "dot_csr"]

_BLOCK = 1 << 20
"""Elements of the rows picked at a time for the gradient by a sparse matrix's values."""


class CsrDot(Node):
    """op(S) b, S sparse; children values, indexes, offsets, b."""

    type_name = "csr_dot"

    def __init__(self, parts: list[Node], b: Node, shape: Shape, trans: bool) -> None:
        self.trans = trans
        super().__init__([*parts, b], shape, b.type)

    def content(self) -> tuple:
        return self.trans, self.shape

    def forward_ops(self) -> list[NodeOp]:
        values, indexes, offsets, b = (c.value for c in self.children)
        return [csr_dot_op.bind(self.value, values, indexes, offsets, b, self.trans)]

    def backward_ops(self) -> list[NodeOp | None]:
        b = self.children[3]
        return [self._by_values(self.grad, b.value), None, None, self._by_dense(b, self.grad)]

    def _by_dense(self, b: Node, adj: Array) -> NodeOp | None:
        values, indexes, offsets = (c.value for c in self.children[:3])
        if not b.trainable:
            return None
        return csr_dot_op.bind(b.grad, values, indexes, offsets, adj, not self.trans, beta=1.0)

    def _by_values(self, adj: Array, b: Array) -> NodeOp | None:
        """By the value at (i, j) of S: row i of adj times row j of b; of S', row j times row i."""
        values, indexes, offsets = self.children[:3]
        if not values.trainable:
            return None
        starts = tensor.to_host(offsets.value)
        numbers = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))
        rows = tensor.asarray(numbers, like=indexes.value)
        left, right = (b, adj) if self.trans else (adj, b)
        step, ops = max(1, _BLOCK // max(1, b.shape[1])), list[NodeOp]()
        for k in range(0, len(numbers), step):
            part = slice(k, min(k + step, len(numbers)))
            shape = (part.stop - k, b.shape[1])
            mine, other = (tensor.empty(shape, like=adj) for _ in range(2))
            ops.append(take.bind(mine, left, rows[part], 0))
            ops.append(take.bind(other, right, indexes.value[part], 0))
            ops.append(_row_dots.bind(values.grad[part], mine, other, beta=1.0))
        return in_order(ops)

    def backward_reads(self) -> tuple[set[int], bool]:
        return {0, 1, 2} | ({3} if self.children[0].trainable else set()), False


_row_dots = tensor.aggregate("_1 * _2", "sum", 1)


class DotCsr(CsrDot):
    """b op(S), computed as the transpose of op(S)' b'."""

    type_name = "dot_csr"

    def forward_ops(self) -> list[NodeOp]:
        values, indexes, offsets, b = (c.value for c in self.children)
        return [csr_dot_op.bind(self.value.T, values, indexes, offsets, b.T, not self.trans)]

    def backward_ops(self) -> list[NodeOp | None]:
        # of S' where CsrDot has S: the operands trade places
        b = self.children[3]
        return [self._by_values(b.value.T, self.grad.T), None, None, self._by_dense(b, self.grad)]

    def _by_dense(self, b: Node, adj: Array) -> NodeOp | None:
        values, indexes, offsets = (c.value for c in self.children[:3])
        if not b.trainable:
            return None
        return csr_dot_op.bind(b.grad.T, values, indexes, offsets, adj.T, self.trans, beta=1.0)


def _check(what: str, shape: Shape, parts: list[Node], b: Node, inner: int, size: int) -> None:
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


def _signed(indexes: Node) -> Node:
    """Constant indexes of uint32 as int32, which the products take."""
    if indexes.type is not Type.UINT32 or not isinstance(indexes, Constant):
        return indexes
    return indexes.graph.constant(indexes.value, Type.INT32)


def csr_dot(
    shape: Shape, values: Node, indexes: Node, offsets: Node, b: Node, trans: bool = False
) -> Node:
    """op(S) b for S of this shape: values, column indexes, row offsets."""
    rows, inner = (shape[1], shape[0]) if trans else shape
    parts = [values, _signed(indexes), _signed(offsets)]
    _check("csr_dot", shape, parts, b, inner, b.shape[0])
    return b.graph.add(CsrDot(parts, b, (rows, b.shape[1]), trans))


def dot_csr(
    b: Node, shape: Shape, values: Node, indexes: Node, offsets: Node, trans: bool = False
) -> Node:
    """b op(S) for S of this shape."""
    inner, cols = (shape[1], shape[0]) if trans else shape
    parts = [values, _signed(indexes), _signed(offsets)]
    _check("dot_csr", shape, parts, b, inner, b.shape[-1])
    return b.graph.add(DotCsr(parts, b, (b.shape[0], cols), trans))
