"""Nodes for training: cross-entropy, dropout."""

from __future__ import annotations

from nnet3tools import tensor
from nnet3tools.expression.elementwise import apply, cast
from nnet3tools.expression.help_text import described
from nnet3tools.expression.leaves import constant_like
from nnet3tools.expression.moves import flatten, reshape
from nnet3tools.expression.node import Node, NodeGraph, NodeOp
from nnet3tools.expression.reductions import logsumexp, mean, scalar_product, sum_
from nnet3tools.expression.select import as_indexes, gather
from nnet3tools.expression.shapes import ExpressionError, Shape, normal_axis
from nnet3tools.tensor.formulas import Type


class DropoutMask(Node):
    """A node with a random mask: 0 with probability p, else 1 / (1 - p), drawn at each run."""

    type_name = "dropout_mask"
    differentiable = shareable = recomputable = False

    def __init__(self, graph: NodeGraph, shape: Shape, type: Type, p: float) -> None:
        self.p = p
        super().__init__((), shape, type)
        self.graph = graph

    def forward_ops(self) -> list[NodeOp]:
        value = self.value
        threshold = _threshold.bind(value, self.p, 1.0 / (1.0 - self.p))
        return [lambda: tensor.random.uniform(value), threshold]


_threshold = tensor.element("_1 = (_1 > _2) * _3")


@described("none", "value `shape`")
def dropout_mask(graph: NodeGraph, p: float, shape: Shape, type: Type = Type.FLOAT32) -> Node:
    """A node with a random mask of mean 1 that is 0 with probability p, drawn at each run."""
    if not 0.0 <= p < 1.0:
        raise ExpressionError(f"dropout: the probability must be in [0, 1), found {p}")
    return graph.add(DropoutMask(graph, tuple(shape), type, float(p)))


@described("adj * mask")
def dropout(x: Node, p: float | Node, axes: tuple[int, ...] | None = None) -> Node:
    """x times a dropout mask: the node p, or if p is a number, a random mask of this rate.

    A random mask varies along `axes` only (None: along all axes).
    """
    if isinstance(p, Node):
        return x * p
    if p == 0:
        return x
    every = range(len(x.shape))
    kept = every if axes is None else [normal_axis(a, x.shape, "dropout") for a in axes]
    if len(set(kept)) < len(kept):
        raise ExpressionError(f"dropout takes axes, each once: found {tuple(axes or ())}")
    shape = tuple(n if i in kept else 1 for i, n in enumerate(x.shape))
    return x * dropout_mask(x.graph, p, shape, x.type)


def _labels(x: Node, labels: Node) -> Node:
    labels = as_indexes(x, len(x.shape) - 1, labels, "labels")
    if labels.shape == x.shape[:-1]:
        labels = reshape(labels, (*labels.shape, 1))
    if labels.shape != (*x.shape[:-1], 1):
        raise ExpressionError(
            f"labels must be one a row: found {labels.describe()} for {x.describe()}"
        )
    return labels


@described("adj * (softmax(x) - target) by x", "")
def cross_entropy(x: Node, labels: Node, label_smoothing: float = 0.0) -> Node:
    """Cross-entropy -log softmax(x)[label], (.., 1); x is (.., D), labels are (..) or (.., 1)."""
    total = logsumexp(x, -1)
    loss = total - gather(x, -1, _labels(x, labels))
    if label_smoothing == 0.0:
        return loss
    return (1.0 - label_smoothing) * loss + label_smoothing * (total - mean(x, -1))


@described("adj * q / (1 - q) * (onehot(label) - softmax(x)) by x; q is softmax(x)[label]", "")
def unlikelihood(x: Node, labels: Node) -> Node:
    """The loss -log(1 - softmax(x)[label]), (.., 1), for x (.., D) (Welleck et al. 2020)."""
    chosen = gather(x, -1, _labels(x, labels))
    return -apply("log", 1.0 - apply("exp", chosen - logsumexp(x, -1)))


def masked_mean(loss: Node, mask: Node) -> Node:
    """The mean (1) of the losses whose mask is not 0, weighted by the mask; Marian's ce-mean-words.

    Shapes: loss (..), mask broadcasts to it, value (1). Derivative: adj * mask / sum of the mask.
    """
    full = cast(mask, loss.type) + constant_like(loss, 0)
    if full.shape != loss.shape:
        raise ExpressionError(f"masked_mean: {mask.describe()} does not fit {loss.describe()}")
    return scalar_product(flatten(loss), flatten(full)) / sum_(full, None)
