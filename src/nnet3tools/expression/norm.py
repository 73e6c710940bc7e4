"""Normalization of rows (layer norm and RMS norm) and of columns (batch norm).

Ba et al. 2016; Zhang and Sennrich 2019; Ioffe and Szegedy 2015.
"""

from __future__ import annotations

import math
from typing import ClassVar

from nnet3tools import tensor
from nnet3tools.expression.elementwise import cast
from nnet3tools.expression.help_text import described
from nnet3tools.expression.moves import contiguous
from nnet3tools.expression.node import Node, NodeOp
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.expression.softmax import rows_of
from nnet3tools.tensor import Array
from nnet3tools.tensor.call import in_turn
from nnet3tools.tensor.formulas import Type


class RmsNorm(Node):
    """A node with each row divided by its root mean square, times `scale`, plus `offset`.

    If `is_centred`, the row's mean is subtracted first.
    """

    type_name, overwrites = "rms_norm", True
    options = "eps", "has_scale", "has_offset"
    is_centred: ClassVar[bool] = False

    def __init__(self, x: Node, scale: Node | None, offset: Node | None, eps: float) -> None:
        self.eps = eps
        self.has_scale, self.has_offset = scale is not None, offset is not None
        super().__init__([c for c in (x, scale, offset) if c is not None], x.shape, x.type)

    @property
    def scale(self) -> Node | None:
        """The child with the factor of each column, or None."""
        return self.children[1] if self.has_scale else None

    @property
    def offset(self) -> Node | None:
        """The child with the number that is added to each column, or None."""
        return self.children[-1] if self.has_offset else None

    def forward_ops(self) -> list[NodeOp]:
        scale, offset = (None if c is None else _row(c.value) for c in (self.scale, self.offset))
        out, x = rows_of(self.value), rows_of(self.children[0].value)
        return [tensor.layer_norm.bind(out, x, scale, offset, self.eps, self.is_centred)]

    def backward_ops(self) -> list[NodeOp | None]:
        """One operation for all gradients, at the first trainable child; None at other children."""
        x, scale, offset = self.children[0], self.scale, self.offset
        step: NodeOp = tensor.layer_norm_backprop.bind(
            rows_of(x.value), rows_of(self.grad),
            None if scale is None else _row(scale.value), self.eps,
            rows_of(x.grad) if x.trainable else None, _row_gradient(scale), _row_gradient(offset),
            0 not in self.children_to_set, self.is_centred,
        )  # fmt: skip
        first = next(i for i, child in enumerate(self.children) if child.trainable)
        if first in self.children_to_set and first > 0:
            step = in_turn([tensor.fill.bind(self.children[first].grad, 0.0), step])
        return [step if i == first else None for i in range(len(self.children))]

    def backward_reads(self) -> tuple[set[int], bool]:
        return set(range(1 + self.has_scale)), False


class LayerNorm(RmsNorm):
    """A node with each row normalized to mean 0 and variance 1, times `scale`, plus `offset`."""

    type_name = "layer_norm"
    is_centred = True


class BatchNorm(Node):
    """A node with each column normalized to mean 0 and variance 1."""

    type_name, overwrites = "batch_norm", True
    options = ("eps",)
    values_read = frozenset(), True

    def __init__(self, x: Node, eps: float) -> None:
        self.eps = eps
        super().__init__([x], x.shape, x.type)

    def forward_ops(self) -> list[NodeOp]:
        x = self.children[0].value
        self._stats = tensor.empty((3, self.shape[1]), like=x)
        return [tensor.batch_norm.bind(self.value, self._stats, x, self.eps, 1.0)]

    def backward_ops(self) -> list[NodeOp | None]:
        grad, rest = self.children[0].grad, (self.value, self.grad, self._stats[2], 1.0)
        if 0 in self.children_to_set:
            return [tensor.batch_norm_backprop.bind(grad, *rest)]
        part = tensor.empty(self.shape, like=grad)
        compute = tensor.batch_norm_backprop.bind(part, *rest)
        return [in_turn([compute, tensor.add.bind(grad, part)])]


def _row(array: Array) -> Array:
    """A view of the last axis of an array whose other axes have size 1, as a vector."""
    return array[(0,) * (array.ndim - 1)]


def _row_gradient(child: Node | None) -> Array | None:
    return _row(child.grad) if child is not None and child.trainable else None


def _is_row(operand: Node | None, x: Node) -> bool:
    """Whether `operand` has one number for each column of x and the type of x."""
    return operand is not None and (
        math.prod(operand.shape) == operand.shape[-1] == x.shape[-1] and operand.type is x.type
    )


def _norm(kind: type[RmsNorm], x: Node, gamma: Node | None, beta: Node | None, eps: float) -> Node:
    if not x.type.is_float or not x.shape[-1]:
        raise ExpressionError(f"{kind.type_name} of {x.describe()}: expected rows of floats")
    for operand in (gamma, beta):
        if operand is not None and operand.shape[-1] not in (1, x.shape[-1]):
            raise ExpressionError(
                f"{kind.type_name}: {operand.describe()} does not fit {x.describe()}"
            )
    rows = x if len(x.shape) <= 2 else contiguous(x)
    if x.type is Type.FLOAT16:
        return _through_float32(kind, x, gamma, beta, eps)
    # other shapes, such as one number per row, are broadcast by separate nodes
    scale = gamma if _is_row(gamma, x) else None
    offset = beta if scale is gamma and _is_row(beta, x) else None
    made = x.graph.add(kind(rows, scale, offset, float(eps)))
    made = made if scale is gamma or gamma is None else made * gamma
    return made if offset is beta or beta is None else made + beta


def _through_float32(
    kind: type[RmsNorm], x: Node, gamma: Node | None, beta: Node | None, eps: float
) -> Node:
    """Normalize float16 operands with the node class `kind` in float32: squares would overflow."""
    g, b = (None if o is None else cast(o, Type.FLOAT32) for o in (gamma, beta))
    return cast(_norm(kind, cast(x, Type.FLOAT32), g, b, eps), Type.FLOAT16)


@described(
    "(g - mean(g) - y * mean(g * y)) / sd by x, adj * y by gamma, adj by beta; "
    "y is (x - mean) / sd, g is adj * gamma",
    "x (.., d), gamma and beta broadcast to it",
)
def layer_norm(
    x: Node, gamma: Node | None = None, beta: Node | None = None, eps: float = 1e-9
) -> Node:
    """Normalize each row of x to mean 0 and variance 1; then multiply by gamma and add beta."""
    return _norm(LayerNorm, x, gamma, beta, eps)


@described(
    "(g - y * mean(g * y)) / rms by x, adj * y by gamma, adj by beta; y is x / rms, g adj * gamma",
    "x (.., d), gamma and beta broadcast to it",
)
def rms_norm(
    x: Node, gamma: Node | None = None, beta: Node | None = None, eps: float = 1e-9
) -> Node:
    """Normalize each row of x to mean square 1; then multiply by gamma and add beta."""
    return _norm(RmsNorm, x, gamma, beta, eps)


@described(
    "as that of layer_norm, with means over the rows", "x (n, d), gamma and beta broadcast to it"
)
def batch_norm(
    x: Node, gamma: Node | None = None, beta: Node | None = None, eps: float = 1e-3
) -> Node:
    """Normalize each column of x to mean 0 and variance 1; then multiply by gamma, add beta."""
    if not x.type.is_float or len(x.shape) != 2:
        raise ExpressionError(f"batch_norm of {x.describe()}: expected a matrix of floats")
    if x.type is Type.FLOAT16:
        made = cast(batch_norm(cast(x, Type.FLOAT32), eps=eps), Type.FLOAT16)
    else:
        made = x.graph.add(BatchNorm(x, float(eps)))
    made = made if gamma is None else made * gamma
    return made if beta is None else made + beta
