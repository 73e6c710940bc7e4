"""Normalisation of rows: layer norm (Ba et al. 2016) and RMS norm (Zhang and Sennrich 2019)."""

from __future__ import annotations

from nnet3tools import tensor
from nnet3tools.expression.moves import contiguous
from nnet3tools.expression.node import Expr, NodeOp
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.expression.softmax import rows_of

__all__ = ["layer_norm", "rms_norm"]

_mean = tensor.aggregate("_1", "mean", 1)
_mean_square = tensor.aggregate("sqr(_1)", "mean", 1)
_mean_square_about = tensor.aggregate("sqr(_1 - _2)", "mean", 1)
_mean_product = tensor.aggregate("_1 * _2", "mean", 1)
_invert = tensor.element("_1 = 1 / sqrt(_1 + _2)")
_normalise = tensor.element("_1 = (_2 - _3) * _4")
_multiply = tensor.element("_1 = _2 * _3")
_add_layer = tensor.element("_1 = _1 + _2 * (_3 - _4 - _5 * _6)")
_add_rms = tensor.element("_1 = _1 + _2 * (_3 - _4 * _5)")


class RmsNorm(Expr):
    """x over the root mean square of its row."""

    type_name = "rms_norm"

    def __init__(self, x: Expr, eps: float) -> None:
        self.eps = eps
        super().__init__([x], x.shape, x.type)

    def content(self) -> tuple:
        return (self.eps,)

    def forward_ops(self) -> list[NodeOp]:
        x, value = rows_of(self.children[0].value), rows_of(self.value)
        self._inverse = tensor.empty((len(x), 1), like=x)
        return [
            _mean_square.bind(self._inverse, x),
            _invert.bind(self._inverse, self.eps),
            _multiply.bind(value, x, self._inverse),
        ]

    def backward_ops(self) -> list[NodeOp | None]:
        grad, adj, value = (rows_of(a) for a in (self.children[0].grad, self.grad, self.value))
        inner = tensor.empty((len(adj), 1), like=adj)
        steps: list[NodeOp] = [
            _mean_product.bind(inner, adj, value),
            _add_rms.bind(grad, self._inverse, adj, value, inner),
        ]
        return [_in_order(steps)]

    def backward_reads(self) -> tuple[set[int], bool]:
        return set(), True


class LayerNorm(RmsNorm):
    """x less its row's mean, over its row's standard deviation."""

    type_name = "layer_norm"

    def forward_ops(self) -> list[NodeOp]:
        x, value = rows_of(self.children[0].value), rows_of(self.value)
        self._inverse = tensor.empty((len(x), 1), like=x)
        mean = tensor.empty((len(x), 1), like=x)
        return [
            _mean.bind(mean, x),
            _mean_square_about.bind(self._inverse, x, mean),
            _invert.bind(self._inverse, self.eps),
            _normalise.bind(value, x, mean, self._inverse),
        ]

    def backward_ops(self) -> list[NodeOp | None]:
        grad, adj, value = (rows_of(a) for a in (self.children[0].grad, self.grad, self.value))
        inner, mean = (tensor.empty((len(adj), 1), like=adj) for _ in range(2))
        steps: list[NodeOp] = [
            _mean.bind(mean, adj),
            _mean_product.bind(inner, adj, value),
            _add_layer.bind(grad, self._inverse, adj, mean, value, inner),
        ]
        return [_in_order(steps)]


def _in_order(steps: list[NodeOp]) -> NodeOp:
    def run() -> None:
        for step in steps:
            step()

    return run


def _norm(kind: type[RmsNorm], x: Expr, gamma: Expr | None, beta: Expr | None, eps: float) -> Expr:
    if not x.type.is_float or not x.shape[-1]:
        raise ExpressionError(f"{kind.type_name} of {x.describe()}: expected rows of floats")
    made = x.graph.add(kind(x if len(x.shape) <= 2 else contiguous(x), float(eps)))
    for operand in (gamma, beta):
        if operand is not None and operand.shape[-1] not in (1, x.shape[-1]):
            raise ExpressionError(
                f"{kind.type_name}: {operand.describe()} does not fit {x.describe()}"
            )
    made = made if gamma is None else made * gamma
    return made if beta is None else made + beta


def layer_norm(
    x: Expr, gamma: Expr | None = None, beta: Expr | None = None, eps: float = 1e-9
) -> Expr:
    """Rows with mean 0 and variance 1, times gamma, plus beta."""
    return _norm(LayerNorm, x, gamma, beta, eps)


def rms_norm(
    x: Expr, gamma: Expr | None = None, beta: Expr | None = None, eps: float = 1e-9
) -> Expr:
    """Rows with mean square 1, times gamma, plus beta."""
    return _norm(RmsNorm, x, gamma, beta, eps)
