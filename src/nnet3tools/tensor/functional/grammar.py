"""The common part of the two readers of formula text: operators, their precedence, constants.

tensor.functional.parse reads formulas of placeholders, expression.formula those of graphs; they
differ in their operands and results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyparsing as pp

__all__ = ["ASSIGN", "CONSTANTS", "SYMBOLS", "identifier", "number", "operators_over"]

CONSTANTS = {
    "true": True,
    "false": False,
    "inf": float("inf"),
    "nan": float("nan"),
    "pi": 3.141592653589793,
}

SYMBOLS = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "**": "pow", "^": "pow",
    "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne",
    "&&": "and", "&": "and", "and": "and", "||": "or", "|": "or", "or": "or",
}  # fmt: skip
"""Infix operator -> name of the function."""

_MOST_DIGITS = 18  # of an integer that int64 holds

ASSIGN = r"=(?!=)"
"""The sign of a definition, as a regular expression."""

Action = Callable[[str, int, pp.ParseResults], Any]


def identifier() -> pp.ParserElement:
    """A name that is no operator."""
    return pp.Regex(r"(?!(?:and|or|not)\b)[A-Za-z_]\w*").set_name("name")


def number() -> pp.ParserElement:
    """A number without a sign; its action gives an int or a float."""

    def convert(text: str, position: int, tokens: pp.ParseResults) -> int | float:
        word = tokens[0]
        if any(c in word for c in ".eE"):
            return float(word)
        if len(word) > _MOST_DIGITS:
            raise pp.ParseFatalException(text, position, f"an integer of {len(word)} digits")
        return int(word)

    found = pp.Regex(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?").set_name("number")
    return found.set_parse_action(convert)


def operators_over(expr: Any, atom: pp.ParserElement, fold_left: Action, prefix: Action) -> None:
    """Complete `expr`, a Forward, as operators over atoms.

    `fold_left` is given operand, symbol, operand, ...; `prefix` any signs, then an operand.
    """
    unary: Any = pp.Forward()
    power = (atom + pp.Opt(pp.one_of("** ^") - unary)).set_parse_action(fold_left)
    unary <<= (pp.ZeroOrMore(pp.Regex(r"[-+]|!(?!=)")) + power).set_parse_action(prefix)

    def level(part: pp.ParserElement, symbols: str) -> pp.ParserElement:
        return (part + pp.ZeroOrMore(pp.Regex(symbols) - part)).set_parse_action(fold_left)

    # not the first halves of ** and of assignments
    total = level(level(unary, r"\*(?![*=])|/(?!=)"), r"[+-](?!=)")
    compared = (total + pp.Opt(pp.Regex(r"<=|>=|==|!=|<|>") - total)).set_parse_action(fold_left)
    negated = (pp.ZeroOrMore(pp.Regex(r"not\b")) + compared).set_parse_action(prefix)
    expr <<= level(level(negated, r"&&?|and\b"), r"\|\|?|or\b")
