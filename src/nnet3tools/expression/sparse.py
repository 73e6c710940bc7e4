"""Products with sparse matrices in compressed sparse row (CSR) form, given as nodes.

Constant indexes and offsets are checked, and entries sorted, when the node is made. Others are
processed at each run, which waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nnet3tools import tensor
from nnet3tools.expression.elementwise import cast
from nnet3tools.expression.help_text import described
from nnet3tools.expression.leaves import Constant
from nnet3tools.expression.node import Node, NodeOp
from nnet3tools.expression.shapes import ExpressionError, Shape, shape_text
from nnet3tools.tensor import Array, recording
from nnet3tools.tensor.call import in_turn
from nnet3tools.tensor.formulas import Type
from nnet3tools.tensor.operators.csr import csr_dot as csr_dot_op
from nnet3tools.tensor.operators.gather import take

_BLOCK = 1 << 20
"""Elements processed at a time in the gradient by a sparse matrix's values."""


class CsrDot(Node):
    """A node with the product S b of a sparse S (or its transpose); children: S in CSR form, b."""

    type_name = "csr_dot"
    options = "trans", "shape", "sparse_shape"

    def __init__(
        self, parts: list[Node], b: Node, shape: Shape, trans: bool, sparse_shape: Shape
    ) -> None:
        self.trans, self.sparse_shape = trans, sparse_shape
        super().__init__([*parts, b], shape, b.type)

    def forward_ops(self) -> list[NodeOp]:
        b = self.children[3].value
        return [*self._checks(), self._product(self.value, b, self.trans)]

    def backward_ops(self) -> list[NodeOp | None]:
        b = self.children[3]
        by_dense = self._product(b.grad, self.grad, not self.trans, 1.0) if b.trainable else None
        return [self._by_values(self.grad, b.value), None, None, by_dense]

    def _each_run(self, make: Callable[[], NodeOp]) -> NodeOp:
        """The operation that `make` returns; `make` is called in each run if indexes may change."""
        if _are_constant(self.children):
            return make()

        def run() -> None:
            recording.not_capturable()
            make()()

        return run

    def _checks(self) -> list[NodeOp]:
        if _are_constant(self.children):
            return []
        indexes, offsets = (c.value for c in self.children[1:3])
        return [lambda: _check_places(self.type_name, self.sparse_shape, indexes, offsets)]

    def _product(self, out: Array, b: Array, trans: bool, beta: float = 0.0) -> NodeOp:
        values, indexes, offsets = (c.value for c in self.children[:3])
        return self._each_run(
            lambda: csr_dot_op.bind(out, values, indexes, offsets, b, trans, beta=beta)
        )

    def _by_values(self, adj: Array, b: Array) -> NodeOp | None:
        """An operation that adds to the gradient of S's stored values; None if not trainable."""
        if not self.children[0].trainable:
            return None
        left, right = (b, adj) if self.trans else (adj, b)
        return self._each_run(lambda: self._row_products(left, right))

    def _row_products(self, left: Array, right: Array) -> NodeOp:
        """An operation that adds left[i] . right[j] to the gradient of each stored value (i, j)."""
        values, indexes, offsets = self.children[:3]
        starts = tensor.to_host(offsets.value)
        numbers = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))
        rows = tensor.asarray(numbers, like=indexes.value)
        step, ops = max(1, _BLOCK // max(1, left.shape[1])), list[NodeOp]()
        for k in range(0, len(numbers), step):
            part = slice(k, min(k + step, len(numbers)))
            shape = (part.stop - k, left.shape[1])
            mine, other = (tensor.empty(shape, like=left) for _ in range(2))
            ops.append(take.bind(mine, left, rows[part], 0))
            ops.append(take.bind(other, right, indexes.value[part], 0))
            ops.append(_row_dots.bind(values.grad[part], mine, other, beta=1.0))
        return in_turn(ops)

    def backward_reads(self) -> tuple[set[int], bool]:
        return {0, 1, 2} | ({3} if self.children[0].trainable else set()), False


_row_dots = tensor.aggregate("_1 * _2", "sum", 1)


class DotCsr(CsrDot):
    """A node with the product b S of a sparse S (or its transpose), computed as (S' b')'."""

    type_name = "dot_csr"

    def forward_ops(self) -> list[NodeOp]:
        b = self.children[3].value
        return [*self._checks(), self._product(self.value.T, b.T, not self.trans)]

    def backward_ops(self) -> list[NodeOp | None]:
        # as in CsrDot with S' in place of S, so the operands are swapped
        b, adj = self.children[3], self.grad.T
        by_dense = self._product(b.grad.T, adj, self.trans, 1.0) if b.trainable else None
        return [self._by_values(b.value.T, adj), None, None, by_dense]


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
    if _are_constant(parts):
        _check_places(what, shape, indexes.value, offsets.value)


def _check_places(what: str, shape: Shape, indexes: Array, offsets: Array) -> None:
    starts, columns = tensor.to_host(offsets), tensor.to_host(indexes)
    bad = starts[0] != 0 or starts[-1] != len(columns) or (starts[1:] < starts[:-1]).any()
    if bad or (columns.size and (columns.min() < 0 or columns.max() >= shape[1])):
        raise ExpressionError(f"{what}: indexes or offsets do not fit {shape_text(shape)}")


def _are_constant(parts: Sequence[Node]) -> bool:
    """Whether indexes and offsets are constants; `parts` begins with values, indexes, offsets."""
    return isinstance(parts[1], Constant) and isinstance(parts[2], Constant)


def _signed(indexes: Node) -> Node:
    """Convert uint32 indexes to int32, which sparse products require; constants are checked."""
    if indexes.type is not Type.UINT32:
        return indexes
    if isinstance(indexes, Constant):
        return indexes.graph.constant(indexes.value, Type.INT32)
    return cast(indexes, Type.INT32)


@described(
    "S' adj by b; adj b' at the places of S by its values",
    "values and indexes (k), offsets (rows + 1), b (n, m), value (rows of S, m)",
)
def csr_dot(
    shape: Shape, values: Node, indexes: Node, offsets: Node, b: Node, trans: bool = False
) -> Node:
    """The product S b, or S' b with `trans`, of a sparse matrix S of `shape` in CSR form."""
    rows, inner = (shape[1], shape[0]) if trans else shape
    parts = [values, _signed(indexes), _signed(offsets)]
    _check("csr_dot", shape, parts, b, inner, b.shape[0])
    return b.graph.add(CsrDot(parts, b, (rows, b.shape[1]), trans, tuple(shape)))


@described(
    "adj S' by b; b' adj at the places of S by its values",
    "values and indexes (k), offsets (rows + 1), b (m, n), value (m, columns of S)",
)
def dot_csr(
    b: Node, shape: Shape, values: Node, indexes: Node, offsets: Node, trans: bool = False
) -> Node:
    """The product b S, or b S' with `trans`, of a sparse matrix S of `shape` in CSR form."""
    inner, cols = (shape[1], shape[0]) if trans else shape
    parts = [values, _signed(indexes), _signed(offsets)]
    _check("dot_csr", shape, parts, b, inner, b.shape[-1])
    return b.graph.add(DotCsr(parts, b, (b.shape[0], cols), trans, tuple(shape)))
