"""Formula text to expression graphs, with errors that mark the column.

`name = expression; ...; expression`: the last expression is the value; definitions may stand in
any order, each name once. Operators as in tensor.functional; functions are those of this package
under NumPy's names: sum, mean, var, std, max, min, prod and logsumexp take `axis=` (without one
they reduce all elements; max and min of two operands are elementwise).
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyparsing as pp

from nnet3tools import tensor
from nnet3tools.expression.elementwise import apply
from nnet3tools.expression.formula_functions import CALLABLE, call_function
from nnet3tools.expression.graph import Graph
from nnet3tools.expression.node import Node
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.tensor.functional import FUNCTIONS, Constant, FormulaError, simplify
from nnet3tools.tensor.functional.grammar import (
    ASSIGN,
    CONSTANTS,
    MAX_LEVELS,
    SYMBOLS,
    deep_recursion,
    identifier,
    number,
    operators_over,
    parse_whole,
)

__all__ = ["Formula", "parse_formula"]


class _Scope:
    """The values of names while a formula is built; definitions are evaluated when first used."""

    def __init__(self, formula: Formula, given: Mapping[str, Any]) -> None:
        self._formula, self._given = formula, given
        self._done: dict[str, Any] = {}
        self._under_way: list[str] = []

    def look_up(self, name: str, position: int) -> Any:
        """The value of a name; FormulaError if it has none or depends on itself."""
        if name in self._given:
            return self._given[name]
        if name in self._done:
            return self._done[name]
        if name not in self._formula.definitions:
            if name in CONSTANTS:
                return CONSTANTS[name]
            known = [*self._given, *self._formula.definitions, *CONSTANTS]
            raise self._formula.unknown("name", name, known, position)
        if name in self._under_way:
            cycle = [*self._under_way[self._under_way.index(name) :], name]
            raise FormulaError(f"cycle: {' -> '.join(cycle)}", self._formula.text, position)
        if len(self._under_way) == MAX_LEVELS:
            raise FormulaError(
                f"more than {MAX_LEVELS} definitions in turn that use later ones",
                self._formula.text,
                position,
            )
        self._under_way.append(name)
        self._done[name] = self._formula.definitions[name](self)
        self._under_way.pop()
        return self._done[name]


Build = Callable[[_Scope], Any]
"""The grammar's result for a part of a formula: it gives the value, once names have values."""


@dataclass
class Formula:
    """A formula that was read: build it in as many graphs as you like."""

    text: str
    definitions: dict[str, Build]
    result: Build

    def build(self, graph: Graph, names: Mapping[str, Node | float]) -> Node:
        """The node of the formula, names standing for these nodes or numbers.

        FormulaError, which marks the column, for unknown names and functions, operands that do not
        fit, and definitions that go in circles.
        """
        for name in self.definitions:
            if name in names:
                raise FormulaError(f"'{name}' cannot be defined anew", self.text, 0)
        scope = _Scope(self, names)
        with deep_recursion():
            for name in self.definitions:
                scope.look_up(name, 0)
            value = self.result(scope)
        if isinstance(value, (bool, int, float)):
            value = graph.constant(float(value))
        if not isinstance(value, Node):
            raise FormulaError("the formula's value is not a single expression", self.text, 0)
        return value

    def unknown(self, kind: str, name: str, known: Any, position: int) -> FormulaError:
        """The error of an unknown name, with the nearest known one."""
        near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
        hint = f" (nearest known: {near[0]})" if near else ""
        return FormulaError(f"unknown {kind} '{name}'{hint}", self.text, position)


def _at(text: str, position: int, make: Callable[[], Any]) -> Any:
    """The value made; its ExpressionError becomes one that marks the column."""
    try:
        return make()
    except FormulaError:
        raise
    except ExpressionError as error:
        raise FormulaError(str(error), text, position) from None


def _operate(text: str, position: int, name: str, *operands: Any) -> Any:
    if any(isinstance(o, Node) for o in operands):
        return _at(text, position, lambda: apply(name, *operands))
    if any(not isinstance(o, (bool, int, float)) for o in operands):
        raise FormulaError(f"cannot compute with {operands[0]!r}", text, position)
    number = simplify(FUNCTIONS[name](*operands))
    if isinstance(number, Constant):
        return number.value
    value = tensor.empty((1,), dtype="float64")
    tensor.element(number)(value)
    return float(value[0])


def _number(text: str, position: int, tokens: pp.ParseResults) -> Build:
    value = tokens[0]
    return lambda scope: value


def _name(text: str, position: int, tokens: pp.ParseResults) -> Build:
    name = tokens[0]
    return lambda scope: scope.look_up(name, position)


def _list(text: str, position: int, tokens: pp.ParseResults) -> list[Build]:
    parts = list(tokens)
    return [lambda scope: [part(scope) for part in parts]]


def _call(text: str, position: int, tokens: pp.ParseResults) -> Build:
    name, *arguments = tokens
    parts = [a for a in arguments if not isinstance(a, tuple)]
    named: dict[str, Build] = dict(a for a in arguments if isinstance(a, tuple))

    def build(scope: _Scope) -> Any:
        if name not in CALLABLE:
            raise scope._formula.unknown("function", name, CALLABLE, position)
        values = [part(scope) for part in parts]
        options = {key: part(scope) for key, part in named.items()}
        if not any(isinstance(v, (Node, list)) for v in [*values, *options.values()]):
            if name not in FUNCTIONS or options or len(values) != FUNCTIONS[name].arity:
                raise FormulaError(f"{name} needs an operand that is no number", text, position)
            return _operate(text, position, name, *values)
        return _at(text, position, lambda: call_function(name, values, options))

    return build


def _keyword(text: str, position: int, tokens: pp.ParseResults) -> list[tuple[str, Build]]:
    return [(tokens[0], tokens[1])]


def _fold_left(text: str, position: int, tokens: pp.ParseResults) -> Build | None:
    if len(tokens) == 1:
        return None
    first, *rest = tokens

    def build(scope: _Scope) -> Any:
        value = first(scope)
        for symbol, part in zip(rest[::2], rest[1::2], strict=True):
            value = _operate(text, position, SYMBOLS[symbol], value, part(scope))
        return value

    return build


def _prefix(text: str, position: int, tokens: pp.ParseResults) -> Build | None:
    if len(tokens) == 1:
        return None
    *signs, part = tokens

    def build(scope: _Scope) -> Any:
        value = part(scope)
        for sign in reversed(signs):
            if sign in ("!", "not"):
                value = _operate(text, position, "not", value)
            elif sign == "-":
                value = _operate(text, position, "neg", value)
        return value

    return build


@functools.cache
def _grammar() -> pp.ParserElement:
    expr: Any = pp.Forward().set_name("expression")
    lpar, rpar, lbrack, rbrack = (pp.Suppress(c) for c in "()[]")
    assign = pp.Suppress(pp.Regex(ASSIGN))
    keyword = (identifier() + assign - expr).set_parse_action(_keyword)
    call = identifier() + lpar + pp.Opt(pp.DelimitedList(keyword | expr)) - rpar
    items = (lbrack - pp.Opt(pp.DelimitedList(expr)) - rbrack).set_parse_action(_list)
    atom = (
        number().add_parse_action(_number)
        | call.set_parse_action(_call)
        | identifier().set_parse_action(_name)
        | items
        | lpar + expr - rpar
    ).set_name("operand")
    operators_over(expr, atom, _fold_left, _prefix)
    definition = identifier() + assign - expr - pp.Suppress(";")
    definition.set_parse_action(lambda text, at, tokens: [(at, tokens[0], tokens[1])])
    return pp.ZeroOrMore(definition) + expr + pp.Suppress(pp.Opt(";")) + pp.StringEnd()


def parse_formula(text: str) -> Formula:
    """Read a formula; FormulaError, which marks the column, if its syntax is wrong."""
    *definitions, result = parse_whole(_grammar(), text)
    named: dict[str, Build] = {}
    for position, name, build in definitions:
        if name in named:
            raise FormulaError(f"'{name}' is defined twice", text, position)
        named[name] = build
    return Formula(text, named, result)
