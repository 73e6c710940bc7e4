"""Formulas of ExpressionComponent and of objectives: `a = x * 2; sum(a, axis=1) ** 0.5 > y`."""

from __future__ import annotations

import functools
import re
from typing import Any

import pyparsing as pp

from nnet3tools.errors import TextError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.grammars.reading import check_levels, fail, read_text, word
from nnet3tools.number_text import parse_double, parse_int

_MOST_DIGITS = 18  # of an integer that int64 holds
_MOST_OPERATORS = 500_000
_INFIX = r"(\*\*|\^|\*(?!=)|/(?!=)|[-+](?!=))"
_SIGNS = r"((?:(?:[-+]|!(?!=))[ \t\r\n]*)*)"
_LEAF = r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|(?!(?:and|or|not)\b)[A-Za-z_]\w*\b(?!\s*\())"
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
    """Operands with operators of one precedence, evaluated from the left, such as a - b + c."""

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


def _signs(position: int, signs: str) -> tuple[int, tuple[str, ...]]:
    return position, tuple("".join(signs.split()))


def _leaf(text: str, position: int, digits: str) -> Number | Name:
    if digits[0] not in ".0123456789":
        return Name(digits, position)
    real = any(c in digits for c in ".eE")
    number = parse_double(digits) if real else parse_int(digits, 0, 10**_MOST_DIGITS - 1)
    if number is None:
        fail(text, position, f"expected a number, found an integer of {len(digits)} digits")
    return Number(number)


def _pair(text: str, position: int, tokens: Any) -> list[Any]:
    """Parse action: match (operator, signs, operand) -> [operator, (position, signs), operand]."""
    found = tokens[0]
    return [found[1], _signs(found.start(2), found[2]), _leaf(text, found.start(3), found[3])]


def _chain(text: str, position: int, tokens: Any) -> Tree:
    """Parse action: a Chain of the tokens operand, operator, operand, ...; or the only operand."""
    first, *rest = tokens
    pairs = tuple(zip(rest[::2], rest[1::2], strict=True))
    return Chain(first, pairs, position) if pairs else first


def _power(text: str, position: int, tokens: Any) -> Tree:
    """Parse action: signs, operand, signs, operand, ... as a Power; one bare operand as itself."""
    pairs = tuple(
        (tuple(signs), tree) for signs, tree in zip(tokens[::2], tokens[1::2], strict=True)
    )
    return pairs[0][1] if pairs == (((), pairs[0][1]),) else Power(pairs, position)


_LEVELS = {"**": 0, "^": 0, "*": 1, "/": 1, "+": 2, "-": 2, "": 3}
"""Level of arithmetic -> the number of more binding levels, whose runs of operands it ends."""


def _arithmetic(text: str, position: int, tokens: Any) -> Tree:
    """Parse action: the Tree of tokens (position, signs), operand, operator, (position, signs), ...

    Separate levels of the grammar for powers, products and sums take 30 us more for each operand.
    """
    runs: list[list[Any]] = [[], [], [], []]  # open powers, products, sums; the result
    starts = [position] * 4
    for (start, signs), operand, operator in zip(
        tokens[::3], tokens[1::3], [*tokens[2::3], ""], strict=True
    ):
        starts[0] = starts[0] if runs[0] else start
        runs[0] += signs, operand
        level = _LEVELS[operator]
        for k in range(level):
            tree = (_chain if k else _power)(text, starts[k], runs[k])
            starts[k + 1] = starts[k + 1] if runs[k + 1] else starts[k]
            runs[k + 1].append(tree)
            runs[k] = []
        if 0 < level < 3:
            runs[level].append(operator)
    return runs[3][0]


@functools.cache
def _grammar() -> pp.ParserElement:
    expression: Any = pp.Forward().set_name("operand")
    comma, closing = pp.Suppress(","), pp.Suppress(")")
    keyword = word(r"[A-Za-z_]\w*(?=\s*=(?!=))", "name") + pp.Suppress("=")
    called = word(r"(?!(?:and|or|not)\b)[A-Za-z_]\w*(?=\s*\()", "name") + pp.Suppress("(")
    argument = pp.Group(pp.Opt(keyword, "") + expression, aslist=True)

    def listed(item: pp.ParserElement, end: str) -> pp.ParserElement:
        """A grammar for any number of items between commas, then the closing bracket `end`."""
        none = pp.Suppress(end)
        return none | item - pp.ZeroOrMore(comma - item) - pp.Suppress(end)

    atom = pp.MatchFirst(
        [
            word(_LEAF, "operand").set_parse_action(lambda s, at, t: _leaf(s, at, t[0])),
            (called - listed(argument, ")")).set_parse_action(
                lambda s, at, t: Call(t[0], tuple(map(tuple, t[1:])), at)
            ),
            pp.Suppress("(") - expression - closing,
            (pp.Suppress("[") - listed(expression, "]")).set_parse_action(lambda t: List(tuple(t))),
        ]
    ).set_name("operand")
    signs = word(_SIGNS, "sign").set_parse_action(lambda s, at, t: _signs(at, t[0]))
    quick = pp.Regex(rf"{_INFIX}[ \t\r\n]*{_SIGNS}{_LEAF}", as_match=True).set_parse_action(_pair)
    pair = quick | word(_INFIX, "operator") - signs - atom
    arithmetic = (signs + atom + pp.ZeroOrMore(pair)).set_parse_action(_arithmetic)

    def level(part: pp.ParserElement, operators: str, most: int | None = None) -> pp.ParserElement:
        pair = word(operators, "operator") - part
        rest = pp.Opt(pair) if most == 1 else pp.ZeroOrMore(pair)
        return (part + rest).set_parse_action(_chain)

    compared = level(arithmetic, r"<=|>=|==|!=|<|>", most=1)
    negations = pp.Group(pp.ZeroOrMore(word(r"not\b", "not")), aslist=True)
    negated = (negations + compared).set_parse_action(_power)
    expression <<= level(level(negated, r"&&?|and\b"), r"\|\|?|or\b")
    definition = (keyword - expression - pp.Suppress(";")).set_parse_action(
        lambda s, at, t: [(t[0], t[1], at)]
    )
    definitions = pp.Group(pp.ZeroOrMore(definition), aslist=True)
    return pp.Group(definitions + expression + pp.Suppress(pp.Opt(";")), aslist=True)


def read_formula(text: str) -> Formula:
    """Parse a formula; TextError if the text is malformed or has more than 500,000 operators."""
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
