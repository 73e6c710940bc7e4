"""Formulas of ExpressionComponent and of objectives: `a = x * 2; sum(a, axis=1) ** 0.5 > y`."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

import pyparsing as pp

from nnet3tools.errors import TextError
from nnet3tools.grammars.reading import check_levels, fail, read_text, word

_MOST_DIGITS = 18  # of an integer that int64 holds
_MOST_OPERATORS = 5000  # take 5 s to compile
_OPERATOR = re.compile(r"[-+*/^<>&|!,(\[]")


@dataclass(frozen=True)
class Number:
    """A number without a sign, in a formula's syntax tree."""

    value: float


@dataclass(frozen=True)
class Name:
    """A name in a formula that is not called; `position` is its place in the text, from 0."""

    name: str
    position: int


@dataclass(frozen=True)
class Call:
    """A function call in a formula; each argument comes with its keyword or ""."""

    function: str
    arguments: tuple[tuple[str, Tree], ...]
    position: int


@dataclass(frozen=True)
class List:
    """A list `[a, b]` in a formula."""

    items: tuple[Tree, ...]


@dataclass(frozen=True)
class Chain:
    """Operands with infix operators of one precedence, such as a - b + c, from the left."""

    first: Tree
    rest: tuple[tuple[str, Tree], ...]
    """Operator and operand, in order."""
    position: int


@dataclass(frozen=True)
class Power:
    """A power such as `-a ** !b ** c`, which is evaluated from the right, or an operand with signs.

    `operands` are pairs (signs, operand), such as (("-",), a), in the order of the text.
    """

    operands: tuple[tuple[tuple[str, ...], Tree], ...]
    position: int


Tree = Number | Name | Call | List | Chain | Power


@dataclass(frozen=True)
class Formula:
    """A parsed formula: definitions by name, in the order of the text, and the final expression."""

    text: str
    definitions: dict[str, Tree]
    result: Tree


def _number(text: str, position: int, tokens: pp.ParseResults) -> Number:
    digits = tokens[0]
    if any(c in digits for c in ".eE"):
        return Number(float(digits))
    if len(digits) > _MOST_DIGITS:
        fail(text, position, f"expected a number, found an integer of {len(digits)} digits")
    return Number(int(digits))


def _chain(text: str, position: int, tokens: pp.ParseResults) -> Tree:
    first, *rest = tokens
    pairs = tuple(zip(rest[::2], rest[1::2], strict=True))
    return Chain(first, pairs, position) if pairs else first


def _power(text: str, position: int, tokens: pp.ParseResults) -> Tree:
    """Parse action: make a Power, or a bare operand, of the tokens signs, operand, signs, ..."""
    pairs = tuple(
        (tuple(signs), tree) for signs, tree in zip(tokens[::2], tokens[1::2], strict=True)
    )
    return pairs[0][1] if pairs == (((), pairs[0][1]),) else Power(pairs, position)


@functools.cache
def _grammar() -> pp.ParserElement:
    expression: Any = pp.Forward().set_name("operand")
    comma, closing = pp.Suppress(","), pp.Suppress(")")
    keyword = word(r"[A-Za-z_]\w*(?=\s*=(?!=))", "name") + pp.Suppress("=")
    name = word(r"(?!(?:and|or|not)\b)[A-Za-z_]\w*", "name")
    called = word(r"(?!(?:and|or|not)\b)[A-Za-z_]\w*(?=\s*\()", "name") + pp.Suppress("(")
    argument = pp.Group(pp.Opt(keyword, "") + expression, aslist=True)

    def listed(item: pp.ParserElement, end: str) -> pp.ParserElement:
        """A grammar for any number of items between commas, then the closing bracket `end`."""
        none = pp.Suppress(end)
        return none | item - pp.ZeroOrMore(comma - item) - pp.Suppress(end)

    atom = pp.MatchFirst(
        [
            word(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", "number").set_parse_action(_number),
            (called - listed(argument, ")")).set_parse_action(
                lambda s, at, t: Call(t[0], tuple(map(tuple, t[1:])), at)
            ),
            name.set_parse_action(lambda s, at, t: Name(t[0], at)),
            pp.Suppress("(") - expression - closing,
            (pp.Suppress("[") - listed(expression, "]")).set_parse_action(lambda t: List(tuple(t))),
        ]
    ).set_name("operand")
    signs = pp.Group(pp.ZeroOrMore(word(r"[-+]|!(?!=)", "sign")), aslist=True)
    exponent = pp.Suppress(word(r"\*\*|\^", "'**'"))
    power = signs + atom + pp.ZeroOrMore(exponent - signs - atom)

    def level(part: pp.ParserElement, operators: str, most: int | None = None) -> pp.ParserElement:
        pair = word(operators, "operator") - part
        rest = pp.Opt(pair) if most == 1 else pp.ZeroOrMore(pair)
        return (part + rest).set_parse_action(_chain)

    products = level(power.set_parse_action(_power), r"\*(?![*=])|/(?!=)")
    compared = level(level(products, r"[-+](?!=)"), r"<=|>=|==|!=|<|>", most=1)
    negations = pp.Group(pp.ZeroOrMore(word(r"not\b", "not")), aslist=True)
    negated = (negations + compared).set_parse_action(_power)
    expression <<= level(level(negated, r"&&?|and\b"), r"\|\|?|or\b")
    definition = (keyword - expression - pp.Suppress(";")).set_parse_action(
        lambda s, at, t: [(t[0], t[1], at)]
    )
    definitions = pp.Group(pp.ZeroOrMore(definition), aslist=True)
    return pp.Group(definitions + expression + pp.Suppress(pp.Opt(";")), aslist=True)


def read_formula(text: str) -> Formula:
    """Parse a formula; TextError if the text is malformed or has more than 5,000 operators."""
    check_levels(text, "formula", "()[]")
    if (found := len(_OPERATOR.findall(text))) > _MOST_OPERATORS:
        message = f"expected at most {_MOST_OPERATORS} operators and arguments, found {found}"
        raise TextError(message, text, 0, "formula")
    definitions, result = read_text(_grammar(), text, "formula")
    named: dict[str, Tree] = {}
    for name, tree, position in definitions:
        if name in named:
            raise TextError(f"'{name}' is defined twice", text, position, "formula")
        named[name] = tree
    return Formula(text, named, result)
