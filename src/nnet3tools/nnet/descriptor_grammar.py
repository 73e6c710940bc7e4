"""The grammar of descriptors (pyparsing) and its normal form.

What a user writes may nest operators freely; Kaldi evaluates only three levels: Append of
expressions of Sum, Failover, IfDefined and Const over expressions of Offset, Switch, Round,
ReplaceIndex and Scale. `parse_expression` reads text, `normalize` brings an expression into that
form with the rewriting rules of nnet-descriptor.cc (GeneralDescriptor).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyparsing as pp

from nnet3tools.errors import ConfigError
from nnet3tools.nnet.config import is_valid_name, parse_float, parse_int

__all__ = ["Dialect", "Expression", "normalize", "parse_expression"]

SUM_LEVEL = ("Sum", "Failover", "IfDefined")

_MAX_SWITCHED = 1000
"""Terms of a Switch of sums: each sum around a Failover in another may double their number."""


@dataclass(frozen=True)
class Expression:
    """A node of the parsed text.

    `operator` is "" for a node name; `numbers` holds the integers of Offset (t, x), Round
    (modulus), ReplaceIndex (value) and Const (dim); `name` a node name or the variable of
    ReplaceIndex; `alpha` the float of Scale and Const; `position` where in the text it starts.
    """

    operator: str
    children: tuple[Expression, ...] = ()
    name: str = ""
    numbers: tuple[int, ...] = ()
    alpha: float = 1.0
    position: int = 0


def _word(what: str, convert: Any) -> pp.ParserElement:
    """A token up to blank, parenthesis or comma that `convert` accepts (does not make None)."""

    def action(text: str, position: int, tokens: pp.ParseResults) -> Any:
        value = convert(tokens[0])
        if value is None:
            raise pp.ParseException(text, position, f"expected {what}, found '{tokens[0]}'")
        return value

    return pp.Regex(r"[^\s(),]+").set_name(what).set_parse_action(action)


def _positive(text: str) -> int | None:
    value = parse_int(text)
    return value if value is not None and value > 0 else None


def _finite(text: str) -> float | None:
    value = parse_float(text)
    return value if value is not None and np.isfinite(value) else None


@dataclass(frozen=True)
class Dialect:
    """In what the languages with these operators differ: their leaves and their numbers."""

    leaf: str
    """A leaf, as an error message calls it."""
    is_leaf: Callable[[str], bool]
    number: Callable[[str], float | None]
    """The float of Scale and Const that a text is, or None."""


NODES = Dialect("a node name", is_valid_name, _finite)
"""Descriptors of config files."""


@functools.cache
def _grammar(dialect: Dialect) -> pp.ParserElement:
    expression = pp.Forward()
    what = f"{dialect.leaf} or an operator such as Offset"
    opening, closing, comma = (pp.Suppress(c).set_name(f"'{c}'") for c in "(),")
    integer = _word("an integer", parse_int)
    positive = _word("a positive integer", _positive)
    number = _word("a finite number", dialect.number)
    variable = _word("t or x", lambda text: text if text in ("t", "x") else None)

    def operator(name: str, arguments: pp.ParserElement, make: Any) -> pp.ParserElement:
        def action(text: str, position: int, tokens: pp.ParseResults) -> Expression:
            return make(name, list(tokens), position)

        head = pp.Suppress(pp.Regex(name + r"(?=[\s(),]|$)"))
        return (head - opening - arguments - closing).set_parse_action(action)

    def several(name: str, tokens: list[Any], position: int) -> Expression:
        return Expression(name, tuple(tokens), position=position)

    def with_numbers(name: str, tokens: list[Any], position: int) -> Expression:
        return Expression(name, (tokens[0],), numbers=tuple(tokens[1:]), position=position)

    def replace_index(name: str, tokens: list[Any], position: int) -> Expression:
        return Expression(name, (tokens[0],), tokens[1], (tokens[2],), position=position)

    def scale(name: str, tokens: list[Any], position: int) -> Expression:
        return Expression(name, (tokens[1],), alpha=tokens[0], position=position)

    def const(name: str, tokens: list[Any], position: int) -> Expression:
        return Expression(name, numbers=(tokens[1],), alpha=tokens[0], position=position)

    def node_name(text: str, position: int, tokens: pp.ParseResults) -> Expression:
        return Expression("", name=tokens[0], position=position)

    def listed(item: pp.ParserElement) -> pp.ParserElement:
        return item + pp.ZeroOrMore(comma - item)

    alternatives = pp.MatchFirst(
        [operator(name, listed(expression), several) for name in ("Append", "Sum", "Switch")]
        + [
            operator("Failover", expression - comma - expression, several),
            operator("IfDefined", expression, several),
            operator(
                "Offset",
                expression - comma - integer + pp.Optional(comma - integer),
                with_numbers,
            ),
            operator("Round", expression - comma - positive, with_numbers),
            operator(
                "ReplaceIndex", expression - comma - variable - comma - integer, replace_index
            ),
            operator("Scale", number - comma - expression, scale),
            operator("Const", number - comma - positive, const),
            _word(what, lambda text: text if dialect.is_leaf(text) else None).add_parse_action(
                node_name
            ),
        ]
    )
    expression <<= alternatives.set_name(what)
    return expression + pp.StringEnd().set_name("the end of the descriptor")


@functools.lru_cache(maxsize=4096)
def parse_expression(text: str, dialect: Dialect = NODES) -> Expression:
    """Parse the text of a descriptor; ConfigError with the column if it is not well formed."""
    try:
        return _grammar(dialect).parse_string(text, parse_all=True)[0]
    except pp.ParseBaseException as error:
        found = text[error.loc :].strip()
        found = f"'{found[:20]}{'...' if len(found) > 20 else ''}'" if found else "its end"
        message = error.msg[:1].lower() + error.msg[1:]
        if "found" not in message:
            message = f"{message}, found {found}"
        raise ConfigError(f"descriptor '{text}', column {error.loc + 1}: {message}") from None
    except RecursionError:
        raise ConfigError(f"descriptor '{text[:40]}...' is nested too deeply") from None


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
