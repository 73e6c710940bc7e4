"""Node: base class of nodes of an expression graph, and the methods that each kind defines.

After Marian's Chainable and NaryNodeOp (doc/operators.md, src/graph/node.h). A node knows its
children, shape and type. `forward_ops` compute `value`; the i-th of `backward_ops` adds to the
gradient of child i. Both are lists of bound callables, made after memory was allocated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from typing import Any, ClassVar, Protocol, cast

import numpy as np

from nnet3tools.expression.shapes import ExpressionError, Shape, broadcast, shape_text
from nnet3tools.tensor import Array
from nnet3tools.tensor.formulas import Type

NodeOp = Callable[[], object]
"""An operation bound to its operands."""


MAX_ELEMENTS = 1 << 31
"""Limit on the elements of a value, as a short formula could exceed the memory."""


class NodeGraph(Protocol):
    """The methods of a graph that its nodes use; an `inference` graph computes no gradients."""

    inference: bool

    def add(self, node: Node) -> Node:
        """Add a node and return it, or return the graph's equal node."""

    def constant(self, value: Any, type: Type | None = None) -> Node:
        """Make a constant of an array, number or nested list."""

    def apply(self, name: str, *operands: Operand) -> Node:
        """Make the node for the elementwise function `name` of nodes and numbers."""

    def dot(self, a: Node, b: Node) -> Node:
        """Make a node for the matrix product of two matrices."""

    def alias(self, node: Node, name: str) -> Node:
        """Make a node that equals `node` and has the name `name`."""

    def weights(
        self, name: str, shape: Shape, initial: Callable[[Shape], np.ndarray] = ...
    ) -> Node:
        """The parameter `name`, made with the value `initial(shape)` if it is missing."""


def _operator(name: str) -> Callable[[Node, Operand], Node]:
    """Make the method of an infix operator: the elementwise function `name` of (self, other)."""
    return lambda self, other: self.graph.apply(name, self, other)


def _reflected(name: str) -> Callable[[Node, Operand], Node]:
    """Make the method of an infix operator: the elementwise function `name` of (other, self)."""
    return lambda self, other: self.graph.apply(name, other, self)


class Node:
    """A node of an expression; Python's operators build larger expressions.

    `<` and similar operators give 0 or 1 elementwise. `==` compares nodes; elementwise equality is
    `expression.eq`. Reductions keep the reduced axis with size 1. Each class attribute, which has
    its own docstring, says what a graph may do with such nodes: merge, recompute, share memory.
    """

    type_name: str
    """The name of this kind of node."""
    differentiable: ClassVar[bool] = True
    """Whether a gradient can flow through the node."""
    shareable: ClassVar[bool] = True
    """Whether equal nodes may be merged (not random ones)."""
    recomputable: ClassVar[bool] = True
    """Whether the value may be recomputed instead of stored."""
    commutes: bool = False
    """Whether the order of the children is irrelevant."""
    is_leaf: ClassVar[bool] = False
    __array_ufunc__ = None
    """None makes NumPy leave arithmetic with nodes to the nodes."""
    is_value_view: ClassVar[bool] = False
    """Whether the value is a view of child 0's value (see `view`)."""
    is_gradient_view: ClassVar[bool] = False
    """Whether the gradient is the same view of child 0's gradient, without backward operations."""
    overwrites: ClassVar[bool] = False
    """Whether `backward_ops` heeds `children_to_set`; otherwise gradients are zeroed first."""
    options: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes that distinguish nodes of the same kind and children."""
    values_read: ClassVar[tuple[frozenset[int], bool] | None] = None
    """What `backward_reads` returns; None for all children and `value`."""
    children_to_set: frozenset[int] = frozenset()
    """Indexes of the children whose gradients `backward_ops` sets instead of adding to them."""

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

    # methods that subclasses override

    def content(self) -> tuple:
        """The values of `options`; nodes of equal kind, children and content are merged."""
        return tuple([getattr(self, name) for name in self.options])

    def forward_ops(self) -> list[NodeOp]:
        """The operations that compute the node's `value`, in order."""
        return []

    def backward_ops(self) -> list[NodeOp | None]:
        """For each child, the operation that adds to the child's gradient, or None.

        Entries of children that are not trainable are ignored. A kind that `overwrites` sets the
        gradients of `children_to_set` instead, which takes one pass over memory instead of two.
        """
        raise ExpressionError(f"{self.describe()} has no gradient")

    def backward_reads(self) -> tuple[Set[int], bool]:
        """(indexes of children whose values gradients need, whether they need the node's value)."""
        return self.values_read or (set(range(len(self.children))), True)

    def view(self, array: Array) -> Array:
        """For a view node: the part that it shows of child 0's value (or gradient), `array`."""
        return array

    # -- text

    @property
    def label(self) -> str:
        """The node's name or, without a name, its kind and number."""
        return self.name or f"{self.type_name}#{self.number}"

    def describe(self) -> str:
        """The node's name, kind, type and shape, for error messages."""
        named = f"{self.name} " if self.name else ""
        return f"{named}{self.type_name} {self.type.value} {shape_text(self.shape)}"

    def __repr__(self) -> str:
        return f"<{self.describe()}>"

    def named(self, name: str) -> Node:
        """Name the node; if it has another name already, return a new node that equals it."""
        if self.name and self.name != name:
            return self.graph.alias(self, name)
        self.name = name
        return self

    @property
    def is_contiguous(self) -> bool:
        """Whether the node's value and gradient are certain to be contiguous."""
        return not (self.is_value_view or self.is_gradient_view or self.is_leaf)

    # -- operators

    def __bool__(self) -> bool:
        raise ExpressionError(f"{self.describe()} has no truth value: use where()")

    __add__, __radd__ = _operator("add"), _reflected("add")
    __sub__, __rsub__ = _operator("sub"), _reflected("sub")
    __mul__, __rmul__ = _operator("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _operator("div"), _reflected("div")
    __pow__, __rpow__ = _operator("pow"), _reflected("pow")
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("lt", "le", "gt", "ge"))
    __and__, __or__ = _operator("and"), _operator("or")

    def __neg__(self) -> Node:
        return self.graph.apply("neg", self)

    def __abs__(self) -> Node:
        return self.graph.apply("abs", self)

    def __invert__(self) -> Node:
        return self.graph.apply("not", self)

    def __matmul__(self, other: Node) -> Node:
        return self.graph.dot(self, other)

    def __rmatmul__(self, other: Node) -> Node:
        return self.graph.dot(other, self)


Operand = Node | bool | int | float
"""Operand of an elementwise function; NumPy's scalars count as numbers, arrays as constants."""


def common_shape(what: str, operands: Sequence[Node]) -> Shape:
    """The broadcast shape of operands; ExpressionError, which names `what`, if there is none."""
    if (found := broadcast([o.shape for o in operands])) is None:
        shown = ", ".join(o.describe() for o in operands)
        raise ExpressionError(f"the operands of {what} do not broadcast: {shown}")
    return found


def common_type(what: str, operands: Sequence[Node]) -> Type:
    """The element type that all operands have, apart from bool, which takes the type of the others.

    ExpressionError, which names the operator `what` and the types, if two types differ.
    """
    types = dict.fromkeys(o.type for o in operands)
    numbers = [t for t in types if t is not Type.BOOL]
    if len(numbers) > 1:
        shown = ", ".join(o.describe() for o in operands)
        raise ExpressionError(
            f"{what} of {' and '.join(t.value for t in numbers)}: cast one of the operands: {shown}"
        )
    return numbers[0] if numbers else Type.BOOL
