"""The normal form of descriptors.

What a user writes may nest operators freely; Kaldi evaluates only three levels: Append of
expressions of Sum, Failover, IfDefined and Const over expressions of Offset, Switch, Round,
ReplaceIndex and Scale. `normalize` brings an expression into that form with the rewriting rules of
nnet-descriptor.cc (GeneralDescriptor).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nnet3tools.errors import ConfigError
from nnet3tools.nnet.descriptor_text import Expression

__all__ = ["normalize"]

SUM_LEVEL = ("Sum", "Failover", "IfDefined")

_MAX_SWITCHED = 1000
"""Terms of a Switch of sums: each sum around a Failover in another may double their number."""


def _append_terms(expression: Expression) -> list[Expression]:
    """Pull Append to the top: the terms of one Append that equals the expression."""
    if not expression.children:
        return [expression]
    columns = [_append_terms(child) for child in expression.children]
    if expression.operator == "Append":
        return [term for column in columns for term in column]
    if len({len(column) for column in columns}) > 1:
        sizes = ", ".join(str(len(column)) for column in columns)
        raise ConfigError(
            f"column {expression.position + 1}: the arguments of {expression.operator} append "
            f"different numbers of terms: {sizes}"
        )
    return [
        replace(expression, children=tuple(column[i] for column in columns))
        for i in range(len(columns[0]))
    ]


def _around(outer: Expression, inner: Expression) -> Expression:
    """Push a one-argument operator `outer` into each argument of `inner`."""
    pushed = tuple(_simplify_top(replace(outer, children=(c,))) for c in inner.children)
    return replace(inner, children=pushed)


def _simplify_sum(expression: Expression) -> Expression:
    """Sum(x) is x; Sum(a, b, c) is Sum(a, Sum(b, c))."""
    *first, last = expression.children
    for child in reversed(first):
        last = replace(expression, children=(child, last))
    return last


def _simplify_scale(expression: Expression) -> Expression:
    (child,) = expression.children
    if child.operator == "":
        return expression
    if child.operator in ("Scale", "Const"):
        alpha = float(np.float32(expression.alpha) * np.float32(child.alpha))
        return _simplify_top(replace(child, alpha=alpha))
    return _around(expression, child)


def _simplify_forwarding(expression: Expression) -> Expression:
    """Offset, Switch, Round, ReplaceIndex: below Sum, Failover and IfDefined."""
    child = expression.children[0]
    if expression.operator == "Offset":
        t, x = (*expression.numbers, 0)[:2]
        if child.operator == "Offset":
            inner_t, inner_x = (*child.numbers, 0)[:2]
            return _simplify_top(
                replace(expression, numbers=(t + inner_t, x + inner_x), children=child.children)
            )
        if t == 0 and x == 0:
            return child
    if len(expression.children) > 1:
        return _simplify_switch(expression)
    if child.operator == "Const":
        return child
    return _around(expression, child) if child.operator in SUM_LEVEL else expression


def _simplify_switch(expression: Expression) -> Expression:
    """Switch of several arguments: below Sum, Failover and IfDefined.

    Where one argument is a sum, x among the others is Sum(Scale(0.5, x), Scale(0.5, x)), which is
    the same number (to float32's precision in sums of many terms) and computable for the same rows;
    where one is Failover, x is Failover(x, x).
    """
    operators = [child.operator for child in expression.children]
    for operator in ("Sum", "Failover"):
        if operator in operators:
            columns = zip(*(_as_two(operator, c) for c in expression.children), strict=True)
            pair = tuple(_simplify_switch(replace(expression, children=c)) for c in columns)
            whole = Expression(operator, pair, position=expression.position)
            if _num_leaves(whole) > _MAX_SWITCHED:
                raise ConfigError(
                    f"column {expression.position + 1}: the arguments of Switch() combine into "
                    f"more than {_MAX_SWITCHED} terms"
                )
            return whole
    if set(operators) == {"IfDefined"}:
        inner = replace(expression, children=tuple(c.children[0] for c in expression.children))
        return Expression("IfDefined", (_simplify_switch(inner),), position=expression.position)
    for other in expression.children:
        if other.operator in ("IfDefined", "Const"):
            among = " beside others" if other.operator == "IfDefined" else ""
            raise ConfigError(
                f"column {other.position + 1}: {other.operator}() cannot stand inside "
                f"Switch(){among}"
            )
    return expression


def _num_leaves(expression: Expression) -> int:
    return sum(map(_num_leaves, expression.children)) if expression.children else 1


def _as_two(operator: str, expression: Expression) -> tuple[Expression, ...]:
    """The arguments of a Sum or Failover that equals the expression."""
    if expression.operator == operator:
        return expression.children
    if operator == "Sum":
        expression = _simplify_scale(
            Expression("Scale", (expression,), alpha=0.5, position=expression.position)
        )
    return expression, expression


def _simplify_top(expression: Expression) -> Expression:
    """Bring an expression into normal form whose arguments are in normal form already."""
    if expression.operator == "Sum":
        return _simplify_sum(expression)
    if expression.operator == "Scale":
        return _simplify_scale(expression)
    if expression.operator in ("Offset", "Switch", "Round", "ReplaceIndex"):
        return _simplify_forwarding(expression)
    return expression


def _simplify(expression: Expression) -> Expression:
    return _simplify_top(
        replace(expression, children=tuple(_simplify(child) for child in expression.children))
    )


def normalize(expression: Expression) -> list[Expression]:
    """The parts of the top-level Append, each in normal form; ConfigError if there is none."""
    return [_simplify(term) for term in _append_terms(expression)]
