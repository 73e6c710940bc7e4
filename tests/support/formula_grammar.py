"""The grammar of formulas (pyparsing), to plain tuples: what the readers by hand must agree with.

`read_by_hand` reads the same to the same tuples. Both know the formulas of placeholders; lists,
names of arguments and definitions are the other reader's.
"""

from __future__ import annotations

import functools
from typing import Any

import pyparsing as pp

from nnet3tools.tensor.formulas.formula_error import FormulaError
from nnet3tools.tensor.formulas.grammar import FormulaReader, Token, deep_recursion

__all__ = ["read_by_hand", "read_with_grammar"]


def _fold_left(tokens: pp.ParseResults) -> Any:
    first, *rest = tokens
    return ("chain", first, *rest) if rest else None


def _prefix(tokens: pp.ParseResults) -> Any:
    return ("signed", *tokens) if len(tokens) > 1 else None


def _number(word: str) -> tuple[str, float]:
    return "number", float(word) if any(c in word for c in ".eE") else int(word)


@functools.cache
def _grammar() -> pp.ParserElement:
    """One expression."""
    expr: Any = pp.Forward()
    unary: Any = pp.Forward()
    lpar, rpar = pp.Suppress("("), pp.Suppress(")")
    number = pp.Regex(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
    identifier = pp.Regex(r"(?!(?:and|or|not)\b)[A-Za-z_]\w*")
    call = identifier + lpar + pp.Opt(pp.DelimitedList(expr)) - rpar
    atom = (
        number.set_parse_action(lambda tokens: [_number(tokens[0])])
        | call.set_parse_action(lambda tokens: [("call", *tokens)])
        | identifier.copy().set_parse_action(lambda tokens: [("name", tokens[0])])
        | lpar + expr - rpar
    )
    power = (atom + pp.Opt(pp.one_of("** ^") - unary)).set_parse_action(_fold_left)
    unary <<= (pp.ZeroOrMore(pp.Regex(r"[-+]|!(?!=)")) + power).set_parse_action(_prefix)

    def level(part: pp.ParserElement, symbols: str) -> pp.ParserElement:
        return (part + pp.ZeroOrMore(pp.Regex(symbols) - part)).set_parse_action(_fold_left)

    # not the first halves of ** and of assignments
    total = level(level(unary, r"\*(?![*=])|/(?!=)"), r"[+-](?!=)")
    compared = (total + pp.Opt(pp.Regex(r"<=|>=|==|!=|<|>") - total)).set_parse_action(_fold_left)
    negated = (pp.ZeroOrMore(pp.Regex(r"not\b")) + compared).set_parse_action(_prefix)
    expr <<= level(level(negated, r"&&?|and\b"), r"\|\|?|or\b")
    return expr + pp.StringEnd()


def read_with_grammar(text: str) -> Any:
    """The tuples of a formula; None if it is not well formed."""
    try:
        with deep_recursion():
            return _grammar().parse_string(text, parse_all=True)[0]
    except pp.ParseBaseException:
        return None


class _Tuples(FormulaReader[Any]):
    def make_number(self, value: float) -> Any:
        return "number", value

    def make_name(self, name: str, position: int) -> Any:
        return "name", name

    def call(self, name: Token) -> Any:
        return ("call", name.word, *self.listed(self.expression, ")"))

    def make_chain(self, parts: list[Any], symbols: list[str], position: int) -> Any:
        between = [x for pair in zip(symbols, parts[1:], strict=True) for x in pair]
        return ("chain", parts[0], *between)

    def make_signed(self, signs: list[str], part: Any, position: int) -> Any:
        return ("signed", *signs, part)


def read_by_hand(text: str) -> Any:
    """The same with the toolkit's reader."""
    try:
        reader = _Tuples(text)
        with deep_recursion():
            tree = reader.expression()
        reader.expect_end()
    except FormulaError:
        return None
    return tree
