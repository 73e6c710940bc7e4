"""The grammar of formulas of placeholders (pyparsing), and what its parts are built to."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import pyparsing as pp

from nnet3tools.tensor.functional.expr import Cast, Constant, Expr, Placeholder
from nnet3tools.tensor.functional.formula_error import FormulaError
from nnet3tools.tensor.functional.functions import ALIASES, CASTS, FUNCTIONS, ROW_REDUCTIONS
from nnet3tools.tensor.functional.grammar import (
    CONSTANTS,
    SYMBOLS,
    identifier,
    number,
    operators_over,
    parse_whole,
)

__all__ = ["Build", "read_expression", "read_statements"]

Build = Callable[[Mapping[str, Expr]], Expr]
"""The grammar's result for a subformula: it makes the expression, once names have values."""


def _unknown(kind: str, name: str, known: list[str], text: str, position: int) -> FormulaError:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f" (nearest known: {near[0]})" if near else ""
    return FormulaError(f"unknown {kind} '{name}'{hint}", text, position)


def _number(text: str, position: int, tokens: pp.ParseResults) -> Build:
    node = Constant(tokens[0])
    return lambda names: node


def _name(text: str, position: int, tokens: pp.ParseResults) -> Build:
    name = tokens[0]

    def build(names: Mapping[str, Expr]) -> Expr:
        if name in names:
            return names[name]
        if name[0] == "_" and name[1:].isdigit() and name[1] != "0":
            return Placeholder(int(name[1:]))
        if name in CONSTANTS:
            return Constant(CONSTANTS[name])
        raise _unknown("name", name, [*names, *CONSTANTS], text, position)

    return build


def _apply(text: str, position: int, tokens: pp.ParseResults) -> Build:
    name, *parts = tokens

    def build(names: Mapping[str, Expr]) -> Expr:
        arguments = [part(names) for part in parts]
        target = ALIASES.get(name, name)
        if target == "clip" and len(arguments) == 2:
            arguments = [arguments[0], -arguments[1], arguments[1]]
        make: Callable[..., Expr]
        if target in CASTS:
            arity, make = 1, functools.partial(Cast, to=CASTS[target])
        elif (function := FUNCTIONS.get(target) or ROW_REDUCTIONS.get(target)) is not None:
            arity, make = function.arity, function
        else:
            known = [*FUNCTIONS, *ROW_REDUCTIONS, *ALIASES, *CASTS]
            raise _unknown("function", name, known, text, position)
        if len(arguments) != arity:
            raise FormulaError(
                f"function {name} takes {arity} arguments, found {len(arguments)}", text, position
            )
        return make(*arguments)

    return build


def _fold_left(text: str, position: int, tokens: pp.ParseResults) -> Build | None:
    if len(tokens) == 1:
        return None
    first, *rest = tokens

    def build(names: Mapping[str, Expr]) -> Expr:
        value = first(names)
        for symbol, part in zip(rest[::2], rest[1::2], strict=True):
            value = FUNCTIONS[SYMBOLS[symbol]](value, part(names))
        return value

    return build


def _prefix(text: str, position: int, tokens: pp.ParseResults) -> Build | None:
    if len(tokens) == 1:
        return None
    *signs, part = tokens

    def build(names: Mapping[str, Expr]) -> Expr:
        value = part(names)
        for sign in reversed(signs):
            if sign in ("!", "not"):
                value = FUNCTIONS["not"](value)
            elif sign == "-":
                # -2 is the number, so that what is printed reads back to the same tree
                number = isinstance(value, Constant) and not isinstance(value.value, bool)
                value = Constant(-value.value) if number else -value
        return value

    return build


@functools.cache
def _grammar() -> tuple[pp.ParserElement, pp.ParserElement]:
    """The grammar of one expression, and of statements."""
    expr: Any = pp.Forward().set_name("expression")
    lpar, rpar = pp.Suppress("("), pp.Suppress(")")
    call = identifier() + lpar + pp.Opt(pp.DelimitedList(expr)) - rpar
    atom = (
        number().add_parse_action(_number)
        | call.set_parse_action(_apply)
        | identifier().set_parse_action(_name)
        | lpar + expr - rpar
    ).set_name("operand")
    operators_over(expr, atom, _fold_left, _prefix)
    symbol = pp.one_of("= += -= *= /=")
    statement = pp.Group(identifier() + symbol - expr).set_parse_action(
        lambda text, position, tokens: [(position, *tokens[0])]
    )
    end = pp.StringEnd()
    statements = pp.DelimitedList(statement, delim=";") + pp.Opt(pp.Suppress(";")) + end
    return expr + end, statements


def read_expression(text: str) -> Build:
    """A formula's expression, to be built; FormulaError if it is not well formed."""
    return parse_whole(_grammar()[0], text)[0]


def read_statements(text: str) -> list[tuple[int, str, str, Build]]:
    """Assignments as (position, name, sign such as "+=", value); FormulaError as above."""
    return list(parse_whole(_grammar()[1], text))
