"""Elementwise nodes: each function of tensor.formulas is a kind of node.

The table tensor.formulas.functions defines a kind's name, value, derivatives and ONNX name. This
module adds broadcasting, operations bound to memory, and simplifications that avoid nodes. Operands
may be numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnet3tools import tensor
from nnet3tools.expression.gradients import add_reduced, named_term, parse_term
from nnet3tools.expression.help_text import described
from nnet3tools.expression.node import Node, NodeGraph, NodeOp, Operand, common_shape, common_type
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.tensor import formulas
from nnet3tools.tensor.formulas import Apply, Constant, Function, Placeholder, Rule, Type

KINDS = formulas.FUNCTIONS
"""The function for each type name of an elementwise node."""

_VALUE, _ADJ = Placeholder(8), Placeholder(9)


def _placeholders(arity: int) -> dict[str, formulas.Expr]:
    """Placeholders by name: operands "a", "b", "c", result "value", and its gradient "adj"."""
    operands = {"abc"[i]: Placeholder(i + 2) for i in range(arity)}
    return {**operands, "value": _VALUE, "adj": _ADJ}


class Elementwise(Node):
    """A node that applies a function to each element of its broadcast operands."""

    overwrites = True

    def __init__(self, function: Function, operands: Sequence[Operand]) -> None:
        self.function, self.operands = function, tuple(operands)
        self.type_name, self.commutes = function.name, function.name in _COMMUTATIVE
        children = [o for o in operands if isinstance(o, Node)]
        super().__init__(children, common_shape(self.type_name, children), self._type())

    def _type(self) -> Type:
        common_type(self.type_name, _typed(self.function, self.operands))
        types = {
            i + 2: o.type if isinstance(o, Node) else Constant(o).type({})
            for i, o in enumerate(self.operands)
        }
        return _formula(self.function).type(types)

    def content(self) -> tuple:
        kinds = ["child" if isinstance(o, Node) else (type(o), repr(o)) for o in self.operands]
        return self.type_name, *kinds

    def as_formula(self, arguments: Sequence[formulas.Expr]) -> formulas.Expr:
        """The formula of this node's function applied to `arguments`, one for each child."""
        left = iter(arguments)
        return self.function(*(next(left) if isinstance(o, Node) else o for o in self.operands))

    def _arrays(self) -> list[Any]:
        return [o.value if isinstance(o, Node) else o for o in self.operands]

    def forward_ops(self) -> list[NodeOp]:
        return [_element(self.function).bind(self.value, *self._arrays())]

    def _terms(self) -> list[tuple[tuple[str, ...], formulas.Expr]]:
        """For each child: (names of arrays that its gradient reads, formula of the gradient)."""
        terms = derivative_terms(self.function)
        return [terms[i] for i, o in enumerate(self.operands) if isinstance(o, Node)]

    def backward_ops(self) -> list[NodeOp | None]:
        arrays = dict(zip("abc", self._arrays(), strict=False))
        arrays |= {"value": self.value, "adj": self.grad}
        ops: list[NodeOp | None] = []
        for i, (child, (names, term)) in enumerate(zip(self.children, self._terms(), strict=True)):
            if not names or not child.trainable:
                ops.append(None)
                continue
            given = [arrays[name] for name in names]
            ops.append(add_reduced(child.grad, term, given, i in self.children_to_set))
        return ops

    def backward_reads(self) -> tuple[set[int], bool]:
        read: set[str] = set()
        for child, (names, _) in zip(self.children, self._terms(), strict=True):
            if child.trainable:
                read.update(names)
        numbers = [i for i, o in enumerate(self.operands) if isinstance(o, Node)]
        return {k for k, i in enumerate(numbers) if "abc"[i] in read}, "value" in read


class Cast(Elementwise):
    """A node with the elements of its operand converted to another type."""

    def __init__(self, x: Node, to: Type) -> None:
        self.to = to
        super().__init__(_AS_IT_IS, [x])
        self.type_name = "cast"

    def _type(self) -> Type:
        return self.to

    def content(self) -> tuple:
        return (self.to,)

    def as_formula(self, arguments: Sequence[formulas.Expr]) -> formulas.Expr:
        return formulas.cast(arguments[0], self.to)

    def forward_ops(self) -> list[NodeOp]:
        return [tensor.copy.bind(self.value, self.children[0].value)]

    def _terms(self) -> list[tuple[tuple[str, ...], formulas.Expr]]:
        return [parse_term("adj")]


_AS_IT_IS = Function("cast", 1, Rule.ARITHMETIC, "the operand", definition=lambda a: a)


# derived from a function's row in the table


@functools.cache
def _formula(function: Function) -> formulas.Expr:
    return function(*(Placeholder(i + 2) for i in range(function.arity)))


@functools.cache
def _element(function: Function) -> tensor.Element:
    return tensor.element(_formula(function))


@functools.cache
def derivative_terms(function: Function) -> list[tuple[tuple[str, ...], formulas.Expr]]:
    """For each operand: (names of the arrays that its gradient reads, formula of the gradient).

    The names are among "adj" (the node's gradient), "a", "b", "c" (operands) and "value". In the
    formula, `_1`, `_2`, ... stand for these arrays in order.
    """
    placeholders = _placeholders(function.arity)
    operands = [placeholders["abc"[i]] for i in range(function.arity)]
    if function.derivative is not None:
        factors = function.derivative(_VALUE, *operands)
    else:
        assert function.definition is not None
        factors = formulas.derivatives(function.definition(*operands), operands)
    return [named_term(_times_adj(formulas.simplify(f)), placeholders) for f in factors]


def _times_adj(factor: formulas.Expr) -> formulas.Expr:
    """The cheapest formula for adj * factor; a 0-or-1 factor becomes `where`, as 0 * inf is NaN."""
    if isinstance(factor, Apply):
        name, arguments = factor.function.name, factor.arguments
        if factor.function.rule in (Rule.COMPARE, Rule.LOGIC):
            return formulas.FUNCTIONS["where"](factor, _ADJ, 0)
        if name == "div" and isinstance(arguments[0], Constant):
            return formulas.simplify(arguments[0] * _ADJ) / arguments[1]
    return formulas.simplify(_ADJ * factor)


# construction of nodes

_COMMUTATIVE = frozenset({"add", "mul", "eq", "ne", "and", "or"})
"""Not max and min: of equal operands the first one gets the gradient."""


def apply(name: str, *operands: Operand) -> Node:
    """The node of the function `name` applied to `operands`; an operand if the result equals it."""
    function = KINDS[name]
    if len(operands) != function.arity:
        raise ExpressionError(f"{name} takes {function.arity} operands, found {len(operands)}")
    if (graph := next((o.graph for o in operands if isinstance(o, Node)), None)) is None:
        kinds = ", ".join(type(o).__name__ for o in operands)
        raise ExpressionError(f"{name} of {kinds}: not an expression")
    numbers = [o.type for o in _typed(function, operands) if o.type is not Type.BOOL]
    like = numbers[0] if numbers else None
    operands = tuple(o if isinstance(o, Node) else _plain(name, graph, like, o) for o in operands)
    if name in _COMMUTATIVE and not isinstance(operands[0], Node):
        operands = operands[::-1]
    if name in _TRIVIAL and (trivial := _TRIVIAL[name](*operands)) is not None:
        return trivial
    return graph.add(Elementwise(function, operands))


def _typed(function: Function, operands: Sequence[Operand]) -> list[Node]:
    """The nodes among a function's operands whose types must agree: all but a condition."""
    first = 1 if function.rule is Rule.CHOOSE else 0
    return [o for o in operands[first:] if isinstance(o, Node)]


def _plain(name: str, graph: NodeGraph, like: Type | None, operand: Any) -> Operand:
    """Convert an operand of function `name`: a number to a Python number, an array to a constant.

    The constant has the type `like` if that is not None, unless the array has truth values.
    """
    if type(operand) in (float, int, bool):
        return operand
    if isinstance(operand, (np.generic, np.ndarray)) and operand.ndim == 0:
        operand = operand.item()
    if isinstance(operand, np.ndarray):
        return graph.constant(operand, None if operand.dtype == bool else like)
    if not isinstance(operand, (bool, int, float)):
        raise ExpressionError(f"{name} of {type(operand).__name__}: not an expression")
    return operand


@described("adj, converted to the type of x; 0 if x or the value is no float")
def cast(x: Node, to: Type) -> Node:
    """A node with the elements of x converted to the type `to`."""
    return x if x.type is to else x.graph.add(Cast(x, to))


def _neutral(number: int, first_too: bool = False) -> Callable[[Operand, Operand], Node | None]:
    """A function that returns x for operands (x, `number`), and None for other operands.

    x is a float node. With `first_too` the function also returns x for (`number`, x).
    """

    def trivial(a: Operand, b: Operand) -> Node | None:
        pairs = [(a, b), (b, a)] if first_too else [(a, b)]
        for kept, other in pairs:
            is_neutral = isinstance(other, (int, float)) and other == number
            if is_neutral and isinstance(kept, Node) and kept.type.is_float:
                return kept
        return None

    return trivial


def _double_negation(a: Operand) -> Node | None:
    is_negation = isinstance(a, Elementwise) and a.type_name == "neg"
    return a.children[0] if isinstance(a, Node) and is_negation else None


_TRIVIAL: dict[str, Callable[..., Node | None]] = {
    "add": _neutral(0, first_too=True),
    "sub": _neutral(0),
    "mul": _neutral(1, first_too=True),
    "div": _neutral(1),
    "pow": _neutral(1),
    "neg": _double_negation,
}
"""Type name -> rule that returns the operand that equals the result, or None."""
