"""The normal form of descriptors.

Users may nest operators freely. Kaldi evaluates only three levels: Append of expressions of Sum,
Failover, IfDefined and Const over expressions of Offset, Switch, Round, ReplaceIndex and Scale.
`normalize` brings an expression into this form with the rewriting rules of nnet-descriptor.cc
(GeneralDescriptor).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from nnet3tools.errors import TextError
from nnet3tools.fast_dataclasses import replace
from nnet3tools.grammars.descriptor_syntax import Expression
from nnet3tools.nnet.descriptor_parser import MAX_DEPTH

SUM_LEVEL = ("Sum", "Failover", "IfDefined")

_MAX_SWITCHED = 1000
"""Limit on the terms of a Switch; nested Sum and Failover may double them."""


def _append_terms(expression: Expression) -> list[Expression]:
    """The terms of an Append that equals the expression; [expression] if it has no Append."""
    if not expression.children:
        return [expression]
    columns = [_append_terms(child) for child in expression.children]
    if expression.operator == "Append":
        return [term for column in columns for term in column]
    if len({len(column) for column in columns}) > 1:
        sizes = ", ".join(str(len(column)) for column in columns)
        raise expression.error(
            f"the arguments of {expression.operator} append different numbers of terms: {sizes}"
        )
    return [
        replace(expression, children=tuple(column[i] for column in columns))
        for i in range(len(columns[0]))
    ]


def _push_inside(outer: Expression, inner: Expression) -> Expression:
    """Return `inner` with the one-argument operator of `outer` around each argument."""
    pushed = tuple(_simplify_top(replace(outer, children=(c,))) for c in inner.children)
    return replace(inner, children=pushed)


def _joined(operator: str, terms: Iterable[Expression], position: int) -> Expression:
    """Make a Sum or Failover of `terms`, flattening a last term of the same operator.

    `position` is the expression's place in the text. A single term is returned as it is.
    """
    *first, last = terms
    ends = last.children if last.operator == operator else (last,)
    if not first:
        return last
    return Expression(operator, (*first, *ends), position=position)


def _simplify_scale(expression: Expression) -> Expression:
    (child,) = expression.children
    if child.operator == "":
        return expression
    if child.operator in ("Scale", "Const"):
        alpha = float(np.float32(expression.alpha) * np.float32(child.alpha))
        return _simplify_top(replace(child, alpha=alpha))
    return _push_inside(expression, child)


def _simplify_forwarding(expression: Expression) -> Expression:
    """Move Offset, Switch, Round and ReplaceIndex below Sum, Failover and IfDefined.

    Offset(Sum(a, b), 1) becomes Sum(Offset(a, 1), Offset(b, 1)).
    """
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
    return _push_inside(expression, child) if child.operator in SUM_LEVEL else expression


def _simplify_switch(expression: Expression) -> Expression:
    """Move a Switch with several arguments below Sum, Failover and IfDefined.

    If one argument is a Sum, another argument x becomes Sum(Scale(0.5, x), Scale(0.5, x)). This has
    the same value (up to float32's precision) and the same computable rows. If one argument is a
    Failover, x becomes Failover(x, x). ConfigError for IfDefined beside arguments of other kinds.
    """
    operators = {child.operator for child in expression.children}
    for operator in ("Sum", "Failover"):
        if operator in operators:
            return _switch_of_joined(operator, expression)
    if operators == {"IfDefined"}:
        inner = replace(expression, children=tuple(c.children[0] for c in expression.children))
        return Expression("IfDefined", (_simplify_switch(inner),), position=expression.position)
    for other in expression.children:
        if other.operator in ("IfDefined", "Const"):
            among = " beside others" if other.operator == "IfDefined" else ""
            raise other.error(f"{other.operator}() cannot stand inside Switch(){among}")
    return expression


def _num_leaves(expression: Expression) -> int:
    return sum(map(_num_leaves, expression.children)) if expression.children else 1


def _switch_of_joined(operator: str, expression: Expression) -> Expression:
    """Turn a Switch of `operator`s (Sum or Failover) into one `operator` of Switches."""
    terms, rest, size = list[Expression](), expression.children, 0
    while any(child.operator == operator for child in rest):
        pairs = [_split_first(operator, child) for child in rest]
        terms.append(_simplify_switch(replace(expression, children=tuple(p[0] for p in pairs))))
        rest = tuple(p[1] for p in pairs)
        size += _num_leaves(terms[-1])
        if size > _MAX_SWITCHED:
            raise _too_many_terms(expression)
    whole = _joined(
        operator,
        [*terms, _simplify_switch(replace(expression, children=rest))],
        expression.position,
    )
    if _num_leaves(whole) > _MAX_SWITCHED:
        raise _too_many_terms(expression)
    return whole


def _too_many_terms(expression: Expression) -> TextError:
    return expression.error(
        f"the arguments of Switch() combine into more than {_MAX_SWITCHED} terms"
    )


def _split_first(operator: str, expression: Expression) -> tuple[Expression, Expression]:
    """Terms (a, b) such that `operator`(a, b), a Sum or Failover, has the value of `expression`."""
    if expression.operator == operator:
        first, *rest = expression.children
        return first, _joined(operator, rest, expression.position)
    if operator == "Sum":
        expression = _simplify_scale(
            Expression("Scale", (expression,), alpha=0.5, position=expression.position)
        )
    return expression, expression


def _simplify_top(expression: Expression) -> Expression:
    """Bring an expression into the normal form of descriptors, which its arguments have already."""
    if expression.operator in ("Sum", "Failover"):
        return _joined(expression.operator, expression.children, expression.position)
    if expression.operator == "Scale":
        return _simplify_scale(expression)
    if expression.operator in ("Offset", "Switch", "Round", "ReplaceIndex"):
        return _simplify_forwarding(expression)
    return expression


def _simplify(expression: Expression) -> Expression:
    return _simplify_top(
        replace(expression, children=tuple(_simplify(child) for child in expression.children))
    )


def _depth(expression: Expression) -> int:
    return 1 + max(map(_depth, expression.children), default=0)


def normalize(expression: Expression) -> list[Expression]:
    """Bring a descriptor into Kaldi's three-level form; return the terms of the top-level Append.

    ConfigError if the descriptor has no such form.
    """
    parts = [_simplify(term) for term in _append_terms(expression)]
    if max(map(_depth, parts)) >= MAX_DEPTH:  # Append takes one level
        raise expression.error(f"the normal form is nested more than {MAX_DEPTH} levels deep")
    return parts
