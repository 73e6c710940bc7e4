"""Nodes that control gradients and runs: stop or clip gradients, callbacks, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from nnet3tools import tensor
from nnet3tools.expression.elementwise import apply
from nnet3tools.expression.gradients import add_term
from nnet3tools.expression.help_text import described
from nnet3tools.expression.node import Node, NodeOp
from nnet3tools.expression.shapes import ExpressionError, Shape
from nnet3tools.io import log
from nnet3tools.tensor import Array
from nnet3tools.tensor.formulas import Type, dtype_of


class Same(Node):
    """Base class of nodes with the same value and gradient as their operand."""

    values_read = frozenset(), False
    is_value_view = is_gradient_view = True

    def __init__(self, x: Node) -> None:
        super().__init__([x], x.shape, x.type)

    @property
    def is_contiguous(self) -> bool:
        return self.children[0].is_contiguous


class Named(Same):
    """A node that equals its operand, but has another name."""

    type_name = "named"
    options = ("name",)

    def __init__(self, x: Node, name: str) -> None:
        super().__init__(x)
        self.name = name


class StopGradient(Same):
    """A node that equals its operand, but passes no gradient to its operand."""

    type_name = "stop_gradient"
    is_gradient_view = False
    differentiable = False


class ClipGradient(Same):
    """A node that equals its operand and clips the operand's gradient to [-limit, limit]."""

    type_name, overwrites = "clip_gradient", True
    options = ("limit",)
    is_gradient_view = False

    def __init__(self, x: Node, limit: float) -> None:
        self.limit = limit
        super().__init__(x)

    def backward_ops(self) -> list[NodeOp | None]:
        given = {"adj": self.grad, "a": -self.limit, "b": self.limit}
        return [
            add_term(self.children[0].grad, "clip(adj, a, b)", given, 0 in self.children_to_set)
        ]


class Checkpoint(Same):
    """A node whose value is stored; the backward pass recomputes values between two checkpoints."""

    type_name = "checkpoint"


class Callback(Same):
    """A node that equals its operand and calls a function with each newly computed value."""

    type_name = "callback"
    shareable = recomputable = False

    def __init__(self, x: Node, function: Callable[[Array], object]) -> None:
        self.function = function
        super().__init__(x)

    def forward_ops(self) -> list[NodeOp]:
        value, function = self.value, self.function
        return [lambda: function(value)]


class Debug(Callback):
    """A node that equals its operand and logs statistics of the value at each run."""

    type_name = "debug"

    def __init__(self, x: Node, message: str) -> None:
        self.message = message
        super().__init__(x, self._log)

    def _log(self, value: Array) -> None:
        host = tensor.to_host(value)
        spread = f"min {host.min():g} mean {host.mean():g} max {host.max():g}" if host.size else ""
        sample = np.array2string(host.ravel()[:8], precision=5)
        log.log(f"{self.message or 'debug'}: {self.children[0].describe()} {spread} {sample}")


Forward = Callable[[Array, list[Array]], object]
Backward = Callable[[list[Array | None], Array, Array, list[Array]], object]


class Lambda(Node):
    """A node computed by a user's function, with an optional function for the derivative."""

    type_name = "lambda"
    options = "shape", "type", "key"
    recomputable = False

    def __init__(
        self,
        operands: Sequence[Node],
        shape: Shape,
        type: Type,
        forward: Forward,
        backward: Backward | None,
        key: Hashable,
    ) -> None:
        self.forward, self.backward, self.key = forward, backward, key
        self.shareable = key is not None  # type: ignore[misc]
        super().__init__(operands, tuple(shape), type)
        self.trainable = self.trainable and backward is not None

    def forward_ops(self) -> list[NodeOp]:
        value, inputs, forward = self.value, [c.value for c in self.children], self.forward
        return [lambda: forward(value, inputs)]

    def backward_ops(self) -> list[NodeOp | None]:
        """By child: at the first trainable one, an operation for all gradients; None for others."""
        backward = self.backward
        assert backward is not None  # the node is trainable only if there is one
        grads = [c.grad if c.trainable else None for c in self.children]
        inputs, adj, value = [c.value for c in self.children], self.grad, self.value
        ops: list[NodeOp | None] = [None] * len(self.children)
        first = next(i for i, c in enumerate(self.children) if c.trainable)
        ops[first] = lambda: backward(grads, adj, value, inputs)
        return ops


class Select(Node):
    """A node that equals one of its operands; at each run a function chooses the operand."""

    type_name = "choose"
    options = ("index",)
    values_read = frozenset(), False

    def __init__(self, nodes: Sequence[Node], index: Callable[[], int]) -> None:
        self.index = index
        super().__init__(nodes, nodes[0].shape, nodes[0].type)

    def forward_ops(self) -> list[NodeOp]:
        copies = [tensor.copy.bind(self.value, c.value) for c in self.children]
        return [lambda: copies[self.index()]()]

    def backward_ops(self) -> list[NodeOp | None]:
        def add(number: int, grad: Array) -> NodeOp:
            op = tensor.add.bind(grad, self.grad)
            return lambda: op() if self.index() == number else None

        return [add(i, c.grad) if c.trainable else None for i, c in enumerate(self.children)]


@described("none")
def stop_gradient(x: Node) -> Node:
    """Return x as a node that passes no gradient to x."""
    return x.graph.add(StopGradient(x)) if x.trainable else x


@described("clip(adj, -limit, limit)")
def clip_gradient(x: Node, limit: float) -> Node:
    """x as a node that clips the gradient of x to [-limit, limit]; limit 0: no clipping."""
    return x.graph.add(ClipGradient(x, float(limit))) if limit and x.trainable else x


@described("adj")
def checkpoint(x: Node) -> Node:
    """A node equal to x whose value is stored; the backward pass recomputes values in between."""
    return x if x.is_leaf or isinstance(x, Checkpoint) else x.graph.add(Checkpoint(x))


@described("adj")
def callback(x: Node, function: Callable[[Array], object]) -> Node:
    """Return x as a node that calls `function` with the value after each computation of it."""
    return x.graph.add(Callback(x, function))


@described("adj")
def debug(x: Node, message: str = "") -> Node:
    """Return x as a node that logs `message` and statistics of the value at each run."""
    return x.graph.add(Debug(x, message))


@described("what `backward` adds", "operands of any shapes, value `shape`")
def lambda_(
    operands: Sequence[Node],
    shape: Shape,
    type: Type,
    forward: Forward,
    backward: Backward | None = None,
    key: Hashable = None,
) -> Node:
    """A node whose value a user's function writes: forward(out, values of the operands).

    backward(grads, adj, value, values of the operands) adds to each gradient in `grads` that is not
    None; adj is the gradient of the node. Without it no gradient flows. Nodes with equal operands
    and equal `key` (not None) are merged.
    """
    if not operands:
        raise ExpressionError("lambda needs at least one operand")
    dtype_of(type)
    return operands[0].graph.add(Lambda(operands, shape, type, forward, backward, key))


@described("adj for the chosen node, 0 for the others", "as each node and an index node")
def choose(nodes: Sequence[Node], index: Any) -> Node:
    """One of several nodes of equal shape and type, chosen by `index`.

    `index` is a number (other nodes are not computed), a function called at each run, or an int32
    node that chooses for each element.
    """
    if not nodes or any(n.shape != nodes[0].shape or n.type is not nodes[0].type for n in nodes):
        shown = ", ".join(n.describe() for n in nodes) or "nothing"
        raise ExpressionError(f"choose needs nodes of equal shape and type, found {shown}")
    if isinstance(index, Node):
        made = nodes[0]
        for number, node in enumerate(nodes[1:], start=1):
            made = apply("where", apply("eq", index, number), node, made)
        return made
    if callable(index):
        return nodes[0].graph.add(Select(nodes, index))
    if not -len(nodes) <= index < len(nodes):
        raise ExpressionError(f"choose: no node {index} among {len(nodes)}")
    return nodes[index]
