"""Graph: where nodes are kept, so that equal ones are one; and its simple way to run.

g = Graph()
x = g.input("x", (5, 3))
w = g.param("w", np.ones((3, 2), np.float32))
loss = sum_(sqr(dot(x, w)), None)
g.forward(loss, x=array)      # loss.value
g.backward()                  # w.grad
"""

from __future__ import annotations

from typing import Any

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.expression.elementwise import apply
from nnet3tools.expression.execution import Execution
from nnet3tools.expression.host_values import as_array, type_of_array
from nnet3tools.expression.leaves import Constant, Input, Parameter
from nnet3tools.expression.node import Node, Operand
from nnet3tools.expression.products import dot
from nnet3tools.expression.shapes import ExpressionError, Shape, shape_text
from nnet3tools.tensor import Array
from nnet3tools.tensor.functional import Type

__all__ = ["Graph"]


class Graph:
    """An expression graph.

    `like` is an array of the device that constants and memory live on; with `inference` values
    live no longer than the forward pass needs them, and there are no gradients; without
    `reuse_memory` every node keeps memory of its own, so that every value can be looked at.
    """

    def __init__(
        self, like: Array | None = None, inference: bool = False, reuse_memory: bool = True
    ) -> None:
        self.like, self.inference, self.reuse_memory = like, inference, reuse_memory
        self.nodes: list[Node] = []
        self.params: dict[str, Parameter] = {}
        self.inputs: dict[str, Input] = {}
        self._known: dict[tuple, Node] = {}
        self._execution: Execution | None = None

    # -- nodes

    def add(self, node: Node) -> Node:
        """The node; or the one that is there already, if it is of equal kind, content, children."""
        key = (type(node), tuple(c.number for c in node.children), node.content())
        if node.shareable and (found := self._known.get(key)) is not None:
            return found
        node.number = len(self.nodes)
        self.nodes.append(node)
        if node.shareable:
            self._known[key] = node
        return node

    def constant(self, value: Any, type: Type | None = None) -> Node:
        """A constant from an array, number or nested list; floats are float32 unless told."""
        array = as_array(value, type)
        array = array.reshape(1) if array.ndim == 0 else array
        return self.add(Constant(self, tensor.asarray(array, like=self.like)))

    def apply(self, name: str, *operands: Operand) -> Node:
        """An elementwise function of nodes and numbers."""
        return apply(name, *operands)

    def dot(self, a: Node, b: Node) -> Node:
        """The product of two matrices; one may be an array, which becomes a constant."""
        if not isinstance(b, Node):
            b = self.constant(b, a.type)
        return dot(a if isinstance(a, Node) else self.constant(a, b.type), b)

    def param(self, name: str, value: Array) -> Node:
        """The parameter of this name, of a float type; the array itself is trained, not a copy."""
        if (found := self.params.get(name)) is not None:
            if found.shape != tuple(value.shape):
                raise ExpressionError(
                    f"{found.describe()} exists, it cannot be of shape {shape_text(value.shape)}"
                )
            return found
        self._check_new(name)
        _check_trainable(name, type_of_array(value))
        made = Parameter(self, name, value)
        self.params[name] = made
        return self.add(made)

    def input(
        self, name: str, shape: Shape, type: Type = Type.FLOAT32, trainable: bool = False
    ) -> Node:
        """A new input, whose value each run must be given."""
        self._check_new(name)
        if trainable:
            _check_trainable(name, type)
        made = Input(self, name, tuple(shape), type, trainable)
        self.inputs[name] = made
        return self.add(made)

    def _check_new(self, name: str) -> None:
        if name in self.inputs or name in self.params:
            raise ExpressionError(f"the graph has an input or parameter named '{name}' already")

    # -- running

    def forward(self, *roots: Node, **inputs: Array) -> None:
        """Compute the roots' values; memory is planned anew only if the roots changed."""
        if not roots and self._execution is None:
            raise ProgramError("Graph.forward needs a root the first time")
        if self._execution is None or (roots and self._execution.roots != roots):
            self._execution = Execution(
                roots, self.like, not self.inference, reuse_memory=self.reuse_memory
            )
        for name, array in inputs.items():
            self._set(name, array)
        self._execution.forward()

    def _set(self, name: str, array: Array) -> None:
        if (node := self.inputs.get(name)) is None:
            raise ExpressionError(f"no input named '{name}' (known: {', '.join(self.inputs)})")
        if tuple(array.shape) != node.shape:
            raise ExpressionError(f"{node.describe()} was given shape {shape_text(array.shape)}")
        if type_of_array(array) is not node.type:
            raise ExpressionError(f"{node.describe()} was given type {array.dtype}")
        if node.value is None:
            raise ExpressionError(f"{node.describe()} is not part of what is computed")
        tensor.copy(node.value, array)

    def backward(self, seeds: dict[Node, Array] | None = None) -> None:
        """Compute gradients of parameters and trainable inputs; must follow `forward`.

        `seeds` gives the derivatives by the roots; without, all are 1.
        """
        if self.inference:
            raise ExpressionError("the graph was made with inference=True: it has no gradients")
        if self._execution is None:
            raise ProgramError("Graph.backward must follow forward")
        self._execution.backward(seeds)


def _check_trainable(name: str, type: Type) -> None:
    if not type.is_float:
        raise ExpressionError(f"'{name}' is {type.value}: only floats can be trained")
