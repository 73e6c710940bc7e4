"""The common part of the two readers of formula text: operators, their precedence, constants.

tensor.functional.parse reads formulas of placeholders, expression.formula those of graphs; they
differ in their operands and results.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyparsing as pp

from nnet3tools.tensor.functional.formula_error import FormulaError

__all__ = [
    "ASSIGN",
    "CONSTANTS",
    "MAX_LEVELS",
    "SYMBOLS",
    "deep_recursion",
    "identifier",
    "number",
    "operators_over",
    "parse_whole",
]

MAX_LEVELS = 100
"""Levels of parentheses, calls, lists and powers, and of definitions that use later ones."""

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


def parse_whole(grammar: pp.ParserElement, text: str) -> pp.ParseResults:
    """All of a text by a grammar; FormulaError, which marks the column, if that is wrong."""
    _check_levels(text)
    with deep_recursion():
        try:
            return grammar.parse_string(text, parse_all=True)
        except pp.ParseBaseException as error:
            found = repr(text[error.loc]) if error.loc < len(text) else "the end"
            raise FormulaError(
                f"syntax error: {error.msg[0].lower()}{error.msg[1:]}, found {found}",
                text,
                error.loc,
            ) from None


_LEVELS = re.compile(
    r"(?P<power>(?:\*\*|\^)[\s+-]*)|(?P<open>[(\[])|(?P<close>[)\]])|[-+*/<>=&|,;]"
)


def _check_levels(text: str) -> None:
    """FormulaError at the place where a formula is nested too deeply."""
    powers, total = [0], 0
    """Powers on the way at each level of parentheses; all of these."""
    for token in _LEVELS.finditer(text):
        if token["open"]:
            powers.append(0)
        elif token["power"]:
            powers[-1] += 1
            total += 1
        elif token["close"] and len(powers) > 1:
            total -= powers.pop()
        else:
            total -= powers[-1]
            powers[-1] = 0
        if total + len(powers) - 1 > MAX_LEVELS:
            raise FormulaError(
                f"the formula is nested more than {MAX_LEVELS} levels deep", text, token.start()
            )


_FRAMES = 40_000
"""Python calls in one another: 30 a level when text is read, and when definitions are built."""


@contextlib.contextmanager
def deep_recursion() -> Iterator[None]:
    """Allows as many calls in one another as formulas within MAX_LEVELS need."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
