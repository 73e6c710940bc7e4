"""Graph: stores the nodes of expressions, merging equal ones, and computes them.

g = Graph()
x = g.input("x", (5, 3))
w = g.param("w", np.ones((3, 2), np.float32))
loss = sum_(sqr(dot(x, w)), None)
g.forward(loss, x=array)      # loss.value
g.backward()                  # w.grad
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.expression.control import Named
from nnet3tools.expression.elementwise import apply
from nnet3tools.expression.execution import Execution
from nnet3tools.expression.initial import glorot_uniform
from nnet3tools.expression.leaves import Constant, Input, Parameter, as_array, type_of_array
from nnet3tools.expression.node import Node, Operand
from nnet3tools.expression.products import dot
from nnet3tools.expression.shapes import ExpressionError, Shape, shape_text
from nnet3tools.tensor import Array
from nnet3tools.tensor.formulas import Type


class Graph:
    """An expression graph: it holds nodes and computes values and gradients.

    `like` is an array on the device for constants and memory. With `inference` there are no
    gradients, and values live only as long as the forward pass needs them. Without `reuse_memory`
    every node has its own memory, so that all values can be inspected. With `throw_nan`, NaN in a
    value or gradient raises an error that names the node (a check per node on the host).
    """

    def __init__(
        self,
        like: Array | None = None,
        inference: bool = False,
        reuse_memory: bool = True,
        throw_nan: bool = False,
    ) -> None:
        self.like, self.inference, self.reuse_memory = like, inference, reuse_memory
        self.throw_nan = throw_nan
        self.nodes: list[Node] = []
        self.params: dict[str, Parameter] = {}
        self.inputs: dict[str, Input] = {}
        self._known: dict[tuple, Node] = {}
        self._execution: Execution | None = None
        self._roots: tuple[Node, ...] = ()
        self._kept: dict[Node, None] = {}
        self._reached: Container[Node] = ()
        """The nodes for which the last backward pass computed a gradient."""
        self._count = self._cleared = 0
        """Number of nodes ever added, and its value when the graph was last cleared."""

    # -- nodes

    def add(self, node: Node) -> Node:
        """Add a node, unless the graph has an equal one (kind, content, children); return it."""
        numbers = [c.number for c in node.children]
        if numbers and min(numbers) < self._cleared:
            self._refuse_cleared(node)
        key = (type(node), tuple(sorted(numbers) if node.commutes else numbers), node.content())
        if node.shareable and (found := self._known.get(key)) is not None:
            return found
        node.number, self._count = self._count, self._count + 1
        self.nodes.append(node)
        if node.shareable:
            self._known[key] = node
        return node

    def _refuse_cleared(self, node: Node) -> None:
        for child in node.children:
            if child.number < self._cleared and self.params.get(child.name) is not child:
                raise ExpressionError(f"{child.describe()} was there before the graph was cleared")

    def clear(self) -> None:
        """Remove all nodes except parameters, so that the next batch may have other shapes."""
        self.nodes = list(self.params.values())
        self.inputs = {}
        self._known = {(type(p), (), p.content()): p for p in self.nodes}
        self._execution, self._roots, self._kept = None, (), {}
        self._cleared = self._count

    def constant(self, value: Any, type: Type | None = None) -> Node:
        """Make a constant of an array, number or nested list; Python floats become float32."""
        array = as_array(value, type)
        array = array.reshape(1) if array.ndim == 0 else array
        return self.add(Constant(self, tensor.asarray(array, like=self.like)))

    def apply(self, name: str, *operands: Operand) -> Node:
        """Make the node for the elementwise function `name` of nodes and numbers."""
        return apply(name, *operands)

    def dot(self, a: Node, b: Node) -> Node:
        """Make the product of two matrices; an array operand becomes a constant."""
        if not isinstance(b, Node):
            b = self.constant(b, a.type)
        return dot(a if isinstance(a, Node) else self.constant(a, b.type), b)

    def alias(self, node: Node, name: str) -> Node:
        """Make a node that equals `node` and has the name `name`."""
        return self.add(Named(node, name))

    def zeros(self, shape: Sequence[int], type: Type = Type.FLOAT32) -> Node:
        """Make a constant of zeros."""
        return self.constant(np.zeros(shape), type)

    def ones(self, shape: Sequence[int], type: Type = Type.FLOAT32) -> Node:
        """Make a constant of ones."""
        return self.constant(np.ones(shape), type)

    def indices(self, values: Any) -> Node:
        """Make an int32 constant of indexes, such as [2, 0, 1]."""
        return self.constant(values, Type.INT32)

    def param(self, name: str, value: Array, trainable: bool = True) -> Node:
        """The parameter with this name; training changes the given array, not a copy.

        A parameter that is not trainable has no gradient and may be of integers.
        """
        if (found := self.params.get(name)) is not None:
            if found.shape != tuple(value.shape):
                raise ExpressionError(
                    f"{found.describe()} exists, it cannot be of shape {shape_text(value.shape)}"
                )
            return found
        self._check_new(name)
        if trainable:
            _check_trainable(name, type_of_array(value))
        made = Parameter(self, name, value, trainable)
        self.params[name] = made
        return self.add(made)

    def weights(
        self, name: str, shape: Shape, initial: Callable[[Shape], np.ndarray] = glorot_uniform
    ) -> Node:
        """The parameter `name`; if it is missing, make it on the device with `initial(shape)`."""
        missing = name not in self.params
        value = initial(shape) if missing else np.empty(shape, np.float32)
        return self.param(name, tensor.asarray(value, like=self.like) if missing else value)

    def input(
        self, name: str, shape: Shape, type: Type = Type.FLOAT32, trainable: bool = False
    ) -> Node:
        """Make an input, which must be set before each run; `trainable`: it gets a gradient."""
        self._check_new(name)
        if trainable:
            _check_trainable(name, type)
        made = Input(self, name, tuple(shape), type, trainable)
        self.inputs[name] = made
        return self.add(made)

    def _check_new(self, name: str) -> None:
        if name in self.inputs or name in self.params:
            raise ExpressionError(f"the graph has an input or parameter named '{name}' already")

    def save(self, path: str) -> None:
        """Write the parameters to an .npz file."""
        from nnet3tools.expression.parameter_files import write_parameters

        write_parameters(path, self.params)

    def load(self, path: str) -> None:
        """Read parameters from an .npz file; parameters that the graph lacks are added to it."""
        from nnet3tools.expression.parameter_files import read_parameters

        for name, array in read_parameters(path, self.params).items():
            if (param := self.params.get(name)) is not None:
                tensor.copy(param.value, tensor.asarray(array, like=param.value))
            else:
                self.param(name, tensor.asarray(array, like=self.like), array.dtype.kind == "f")

    def clip_gradients(self, norm: float) -> float:
        """Scale parameters' gradients to a joint norm of at most `norm`; return the old norm."""
        return clip_norm(self.gradients().values(), norm)

    def gradients(self) -> dict[str, Array]:
        """The gradient of each parameter that the last backward pass reached, by name."""
        return {p.name: p.grad for p in self.params.values() if p in self._reached}

    # execution

    def forward(self, *roots: Node, **inputs: Array) -> None:
        """Set inputs by name; compute `roots` (default: those of the last call) and `keep`'s nodes.

        Memory is planned again only if the nodes to compute changed. Values of other nodes may be
        overwritten; reading an overwritten value is an error.
        """
        roots = roots or self._roots
        if self._execution is None or self._execution.roots != roots:
            if not roots and not self._kept:
                raise ProgramError("Graph.forward needs a root the first time")
            self._roots = roots
            self._execution = Execution(
                roots, self.like, not self.inference, self.reuse_memory,
                keep=self._kept, watch=self.throw_nan,
            )  # fmt: skip
        for name, array in inputs.items():
            self._set(name, array)
        self._execution.forward()
        self._execution.settle_forward()

    def keep(self, *nodes: Node) -> None:
        """Compute these nodes in all later runs; their values and gradients stay readable."""
        self._kept.update(dict.fromkeys(nodes))
        self._execution = None

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

    def backward(self, seeds: dict[Node, Array] | None = None, accumulate: bool = False) -> None:
        """Compute gradients of parameters and trainable inputs, after `forward`.

        `seeds` are the derivatives with respect to the roots (default: 1). With `accumulate`,
        gradients of leaves are added to the existing ones.
        """
        if self.inference:
            raise ExpressionError("the graph was made with inference=True: it has no gradients")
        if self._execution is None:
            raise ProgramError("Graph.backward must follow forward")
        leaves = [n for n in self._execution.schedule.active if n.is_leaf] if accumulate else []
        before = [_copy(leaf.grad) for leaf in leaves]
        self._execution.backward(seeds)
        self._execution.settle_backward()
        self._reached = self._execution.schedule.active
        for leaf, grad in zip(leaves, before, strict=True):
            tensor.add(leaf.grad, grad)


_square_sum = tensor.aggregate("sqr(_1)", "sum", None)
_scale = tensor.element("_1 = _1 * _2")


def clip_norm(arrays: Iterable[Array], norm: float) -> float:
    """Scale arrays to a joint norm of at most `norm`, in place; return the norm before."""
    parts = list(arrays)
    found = math.sqrt(sum(_square_sum(part) or 0.0 for part in parts))
    if not found <= norm:
        for part in parts:
            _scale(part, norm / found)
    return found


def _copy(array: Array) -> Array:
    made = tensor.empty(array.shape, like=array)
    tensor.copy(made, array)
    return made


def _check_trainable(name: str, type: Type) -> None:
    if not type.is_float:
        raise ExpressionError(f"'{name}' is {type.value}: only floats can be trained")
