"""Node: a node of an expression graph, and what every kind of node may say of itself.

After Marian's Chainable and NaryNodeOp (doc/operators.md, src/graph/node.h): a node knows its
children, shape and type; `forward_ops` computes `value`, the i-th of `backward_ops` adds to the
gradient of the i-th child. Both are lists of bound callables, made when memory has been given out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, cast

from nnet3tools.expression.shapes import ExpressionError, Shape, broadcast, shape_text
from nnet3tools.tensor import Array
from nnet3tools.tensor.formulas import Type, promote

__all__ = ["Node", "NodeGraph", "NodeOp", "Operand", "common_shape", "common_type"]

NodeOp = Callable[[], object]
"""One bound operation."""


MAX_ELEMENTS = 1 << 31
"""Larger values are refused when a node is built: a formula of few letters could ask for any."""


class NodeGraph(Protocol):
    """The graph of a node, as nodes use it."""

    inference: bool

    def add(self, node: Node) -> Node:
        """The node; or the one that is there already, if it is equal."""

    def constant(self, value: Any, type: Type | None = None) -> Node:
        """A constant from an array, number or nested list."""

    def apply(self, name: str, *operands: Operand) -> Node:
        """An elementwise function of nodes and numbers."""

    def dot(self, a: Node, b: Node) -> Node:
        """The product of two matrices."""

    def alias(self, node: Node, name: str) -> Node:
        """A node of this name that equals another."""


class Node:
    """A node; Python's operators build larger expressions of it.

    `<` and its kin give 0 or 1 elementwise; `==` compares the nodes, elementwise equality is
    `expression.eq`. Reductions and the like keep their axis with size 1.
    """

    type_name: str
    """The friendly name of this kind of node."""
    differentiable: ClassVar[bool] = True
    """Whether a gradient can flow through it."""
    shareable: ClassVar[bool] = True
    """Whether an equal node may stand for this one (not so for random ones)."""
    recomputable: ClassVar[bool] = True
    """Whether its value may be computed again instead of being kept."""
    commutes: bool = False
    """Whether the order of the children does not matter."""
    is_leaf: ClassVar[bool] = False
    __array_ufunc__ = None
    """NumPy's arrays and numbers leave arithmetic with nodes to the nodes."""
    is_value_view: ClassVar[bool] = False
    """Whether the value is a view of child 0's (see `view`)."""
    is_gradient_view: ClassVar[bool] = False
    """Whether the gradient is the same view of child 0's: then nothing is to be done backward."""
    overwrites: ClassVar[bool] = False
    """Whether `backward_ops` obeys `fresh`; else gradients are zeroed before they are added to."""
    fresh: frozenset[int] = frozenset()
    """Numbers of the children whose gradient is to be set by their operation, not added to."""

    def __init__(self, children: Sequence[Node], shape: Shape, type: Type) -> None:
        self.children = tuple(children)
        self.shape, self.type = shape, type
        self.graph: NodeGraph = children[0].graph if children else cast(NodeGraph, None)
        self.number = -1
        self.name = ""
        self.trainable: bool = (
            self.differentiable and type.is_float and any(c.trainable for c in self.children)
        )
        self.value: Array = None
        self.grad: Array = None
        if math.prod(shape) > MAX_ELEMENTS:
            raise ExpressionError(f"{self.describe()} is too large")
        if any(c.graph is not self.graph for c in self.children):
            raise ExpressionError(f"{self.type_name}: the operands belong to different graphs")

    # -- what kinds of nodes override

    def content(self) -> tuple:
        """The options that tell this node from others of its kind and children; hashable."""
        return ()

    def forward_ops(self) -> list[NodeOp]:
        """Operations that compute `value`, in order."""
        return []

    def backward_ops(self) -> list[NodeOp | None]:
        """The i-th operation adds to the gradient of child i; None: there is none to add.

        Where child i is not trainable, the i-th entry is left out of the program. A kind that
        `overwrites` sets the gradients of its `fresh` children instead: one pass instead of two.
        """
        raise ExpressionError(f"{self.describe()} has no gradient")

    def backward_reads(self) -> tuple[set[int], bool]:
        """Which children's values, and whether its own value, the backward operations read."""
        return set(range(len(self.children))), True

    def view(self, array: Array) -> Array:
        """The part of child 0's value (or gradient) that is this node's, for views."""
        return array

    # -- text

    @property
    def label(self) -> str:
        """Its name, or kind and number."""
        return self.name or f"{self.type_name}#{self.number}"

    def describe(self) -> str:
        """Name, kind, type and shape, for error messages."""
        named = f"{self.name} " if self.name else ""
        return f"{named}{self.type_name} {self.type.value} {shape_text(self.shape)}"

    def __repr__(self) -> str:
        return f"<{self.describe()}>"

    def named(self, name: str) -> Node:
        """The node, called by this name; if it has another one already, a node that equals it."""
        if self.name and self.name != name:
            return self.graph.alias(self, name)
        self.name = name
        return self

    @property
    def is_contiguous(self) -> bool:
        """Whether value and gradient surely are one run of memory each."""
        return not (self.is_value_view or self.is_gradient_view or self.is_leaf)

    # -- operators

    def __bool__(self) -> bool:
        raise ExpressionError(f"{self.describe()} has no truth value: use where()")

    def __add__(self, other: Operand) -> Node:
        return self.graph.apply("add", self, other)

    def __radd__(self, other: Operand) -> Node:
        return self.graph.apply("add", other, self)

    def __sub__(self, other: Operand) -> Node:
        return self.graph.apply("sub", self, other)

    def __rsub__(self, other: Operand) -> Node:
        return self.graph.apply("sub", other, self)

    def __mul__(self, other: Operand) -> Node:
        return self.graph.apply("mul", self, other)

    def __rmul__(self, other: Operand) -> Node:
        return self.graph.apply("mul", other, self)

    def __truediv__(self, other: Operand) -> Node:
        return self.graph.apply("div", self, other)

    def __rtruediv__(self, other: Operand) -> Node:
        return self.graph.apply("div", other, self)

    def __pow__(self, other: Operand) -> Node:
        return self.graph.apply("pow", self, other)

    def __rpow__(self, other: Operand) -> Node:
        return self.graph.apply("pow", other, self)

    def __neg__(self) -> Node:
        return self.graph.apply("neg", self)

    def __abs__(self) -> Node:
        return self.graph.apply("abs", self)

    def __lt__(self, other: Operand) -> Node:
        return self.graph.apply("lt", self, other)

    def __le__(self, other: Operand) -> Node:
        return self.graph.apply("le", self, other)

    def __gt__(self, other: Operand) -> Node:
        return self.graph.apply("gt", self, other)

    def __ge__(self, other: Operand) -> Node:
        return self.graph.apply("ge", self, other)

    def __and__(self, other: Operand) -> Node:
        return self.graph.apply("and", self, other)

    def __or__(self, other: Operand) -> Node:
        return self.graph.apply("or", self, other)

    def __invert__(self) -> Node:
        return self.graph.apply("not", self)

    def __matmul__(self, other: Node) -> Node:
        return self.graph.dot(self, other)

    def __rmatmul__(self, other: Node) -> Node:
        return self.graph.dot(other, self)


Operand = Node | bool | int | float
"""Of an elementwise function; NumPy's numbers count as Python's, its arrays are made constants."""


def common_shape(what: str, operands: Sequence[Node]) -> Shape:
    """The broadcast shape of operands; ExpressionError that shows them if there is none."""
    found = broadcast([o.shape for o in operands])
    if found is None:
        shown = ", ".join(o.describe() for o in operands)
        raise ExpressionError(f"the operands of {what} do not broadcast: {shown}")
    return found


def common_type(operands: Sequence[Node]) -> Type:
    """The promoted type of operands."""
    found = operands[0].type
    for other in operands[1:]:
        found = promote(found, other.type)
    return found
