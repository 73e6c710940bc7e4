"""Descriptors of xconfig lines: Kaldi's, and `a@-3`, `-3` and `[-1]` where a name may stand.

`a@-3` is Offset(a, -3); an integer alone is that offset of the previous layer; `[-1]` is the name
of the previous layer, `[-2]` of the layer before it. Names are those of layers (`lstm1`) and of
their further outputs (`lstm1.c_t`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pyparsing as pp

from nnet3tools.errors import TextError
from nnet3tools.fast_dataclasses import replace
from nnet3tools.grammars.descriptor_syntax import (
    OPERATORS,
    Argument,
    Expression,
    Signature,
    operation,
)
from nnet3tools.grammars.reading import check_levels, fail, read_text, word

_END = r"(?=[\s(),]|$)"
_INTEGER = r"[-+]?[0-9]+"
_NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"
_LARGEST = 1 << 31
_LEAF = "a layer name or an operator such as Offset"


def read_descriptor(text: str, previous: Sequence[str] = ()) -> Expression:
    """Parse a descriptor of an xconfig line to a syntax tree with the names of layers as leaves.

    `previous` holds the names of earlier layers, in order. TextError if the text is no descriptor,
    or refers to a layer before the first one.
    """
    check_levels(text, "descriptor")
    return _resolved(read_text(_grammar(), text, "descriptor"), text, previous)


def _integer(kind: str, least: int) -> pp.ParserElement:
    def action(text: str, position: int, tokens: pp.ParseResults) -> int:
        digits = tokens[0].lstrip("+-0") or "0"
        value = int(digits) if len(digits) <= 10 else _LARGEST
        value = -value if tokens[0][0] == "-" else value
        if not least <= value < _LARGEST:
            fail(text, position, f"expected {kind}, found '{tokens[0][:20]}'")
        return value

    return word(_INTEGER + _END, kind).set_parse_action(action)


def _number(text: str, position: int, tokens: pp.ParseResults) -> float:
    """Convert a parsed number, tokens[0], to float; from 1e38 on, report an error at `position`."""
    if abs(float(tokens[0])) >= 1e38:
        fail(text, position, f"expected {Argument.NUMBER.value}, found '{tokens[0]}'")
    return float(tokens[0])


_FLOAT = r"[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?"
_KINDS: dict[Argument, pp.ParserElement] = {
    Argument.EXPRESSION: pp.Forward().set_name(_LEAF),
    Argument.INTEGER: _integer(Argument.INTEGER.value, -_LARGEST),
    Argument.POSITIVE: _integer(Argument.POSITIVE.value, 1),
    Argument.NUMBER: word(_FLOAT + _END, Argument.NUMBER.value).set_parse_action(_number),
    Argument.VARIABLE: word("[tx]" + _END, Argument.VARIABLE.value),
}


@functools.cache
def _grammar() -> pp.ParserElement:
    expression: Any = _KINDS[Argument.EXPRESSION]
    opening, closing, comma = (pp.Suppress(c).set_name(f"'{c}'") for c in "(),")

    def arguments(signature: Signature) -> pp.ParserElement:
        first, *others = (_KINDS[kind] for kind in signature.arguments)
        if signature.repeated:
            return first - pp.ZeroOrMore(comma - first)
        optional = len(others) - signature.num_optional
        for i, other in enumerate(others):
            first = first - (comma - other if i < optional else pp.Opt(comma - other))
        return first

    def operator(name: str, signature: Signature) -> pp.ParserElement:
        whole = pp.Suppress(pp.Regex(name + _END)) - opening - arguments(signature) - closing
        return whole.set_parse_action(lambda s, at, tokens: operation(name, list(tokens), at))

    offset = pp.Opt(pp.Suppress("@") - _KINDS[Argument.INTEGER], 0)
    back = pp.Suppress("[") - word(r"-[0-9]{1,9}(?=\s*\])", "a negative integer") - pp.Suppress("]")
    part = pp.Opt(word(r"\.[A-Za-z0-9_.-]+", "the name of an output"), "")
    names = word(_NAME + r"(?=[\s(),@]|$)", "a name") | pp.Combine(back + part, adjacent=False)
    named = (names + offset).set_parse_action(lambda s, at, t: _leaf(t[0], t[1], at))
    moved = _KINDS[Argument.INTEGER].copy()
    moved.add_parse_action(lambda s, at, t: _leaf("-1", t[0], at))
    operators = map(operator, OPERATORS, OPERATORS.values())
    expression <<= pp.MatchFirst([*operators, named, moved]).set_name(_LEAF)
    return expression


def _leaf(name: str, offset: int, position: int) -> Expression:
    """The tree of layer `name` ("a", "-2.c") at `position`, inside Offset if `offset` is not 0."""
    leaf = Expression("", name=name, position=position)
    return Expression("Offset", (leaf,), numbers=(offset,), position=position) if offset else leaf


def _resolved(expression: Expression, text: str, previous: Sequence[str]) -> Expression:
    """The expression, names of `previous` for negative numbers (-1: last); errors quote `text`."""
    if expression.operator:
        children = tuple(_resolved(child, text, previous) for child in expression.children)
        return replace(expression, children=children)
    if expression.name[0] != "-":
        return expression
    back, _, part = expression.name.partition(".")
    if not 0 < -int(back) <= len(previous):
        message = f"expected one of the {len(previous)} earlier layers, found [{back}]"
        raise TextError(message, text, expression.position, "descriptor")
    name = previous[int(back)]
    return replace(expression, name=f"{name}.{part}" if part else name)
