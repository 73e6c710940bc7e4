"""Symbolic differentiation, by the chain rule from the root down to the placeholders."""

from __future__ import annotations

from collections.abc import Sequence

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.formulas.expr import Apply, Cast, Constant, Expr, Placeholder
from nnet3tools.tensor.formulas.functions import FUNCTIONS
from nnet3tools.tensor.formulas.simplify import simplify


def partials(node: Apply) -> Sequence[Expr]:
    """The partial derivatives of a function's value, one by each argument, as formulas of these."""
    function = node.function
    if function.derivative is not None:
        return function.derivative(node, *node.arguments)
    if function.definition is None:
        raise ProgramError(f"the function {function.name} has no derivative")
    holders = [Placeholder(i + 1) for i in range(function.arity)]
    inner = derivatives(function.definition(*holders), holders)
    actual = dict(zip(holders, node.arguments, strict=True))
    return [d.substitute(actual) for d in inner]  # type: ignore[arg-type]


def derivatives(expr: Expr, wanted: Sequence[Expr]) -> list[Expr]:
    """The derivatives of an expression by each of the `wanted` nodes, simplified.

    The nodes are placeholders or parts of the expression; the derivative by an absent node is 0.
    """
    nodes = list(expr.walk())
    relevant: set[Expr] = set(wanted)
    for node in nodes:
        if any(a in relevant for a in node.arguments):
            relevant.add(node)
    adjoint: dict[Expr, Expr] = {expr: Constant(1)}
    made: dict[Expr, Expr] = {}
    for node in reversed(nodes):
        if node not in adjoint or node not in relevant:
            continue
        factors: Sequence[Expr] = []
        if isinstance(node, Cast):
            factors = [Constant(1) if node.to.is_float else Constant(0)]
        elif isinstance(node, Apply):
            factors = partials(node)
        for argument, factor in zip(node.arguments, factors, strict=False):
            if argument in relevant:
                term = simplify(FUNCTIONS["mul"](adjoint[node], factor), made)
                known = adjoint.get(argument)
                adjoint[argument] = term if known is None else simplify(known + term, made)
    return [adjoint.get(w, Constant(0)) for w in wanted]


def derivative(expr: Expr, by: Expr) -> Expr:
    """The derivative of an expression by a placeholder or another node, simplified."""
    return derivatives(expr, [by])[0]
