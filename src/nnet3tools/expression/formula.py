"""Formula text to expression graphs, with errors that mark the column.

`name = expression; ...; expression`: the last expression is the value; definitions may stand in
any order, each name once. Operators as in tensor.formulas; functions are those of this package
under NumPy's names: sum, mean, var, std, max, min, prod and logsumexp take `axis=` (without one
they reduce all elements; max and min of two operands are elementwise).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nnet3tools import tensor
from nnet3tools.expression.elementwise import apply
from nnet3tools.expression.formula_functions import CALLABLE, call_function
from nnet3tools.expression.graph import Graph
from nnet3tools.expression.node import Node
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.tensor.formulas import FUNCTIONS, Constant, FormulaError, simplify
from nnet3tools.tensor.formulas.grammar import (
    CONSTANTS,
    MAX_LEVELS,
    SYMBOLS,
    FormulaReader,
    Token,
    deep_recursion,
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
"""What a part of a formula is read to: it gives the value, once names have values."""


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
        import difflib

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


def _apply(formula: Formula, name: Token, values: list[Any], options: dict[str, Any]) -> Any:
    """The value of a call."""
    _, word, position = name
    if word not in CALLABLE:
        raise formula.unknown("function", word, CALLABLE, position)
    if any(isinstance(v, (Node, list)) for v in [*values, *options.values()]):
        return _at(formula.text, position, lambda: call_function(word, values, options))
    if word not in FUNCTIONS or options or len(values) != FUNCTIONS[word].arity:
        raise FormulaError(f"{word} needs an operand that is no number", formula.text, position)
    return _operate(formula.text, position, word, *values)


class _Reader(FormulaReader[Build]):
    def make_number(self, value: float) -> Build:
        return lambda scope: value

    def make_name(self, name: str, position: int) -> Build:
        return lambda scope: scope.look_up(name, position)

    def call(self, name: Token) -> Build:
        arguments = self.listed(self._argument, ")")
        parts = [value for key, value in arguments if not key]
        named = {key: value for key, value in arguments if key}

        def build(scope: _Scope) -> Any:
            values = [part(scope) for part in parts]
            options = {key: part(scope) for key, part in named.items()}
            return _apply(scope._formula, name, values, options)

        return build

    def _argument(self) -> tuple[str, Build]:
        """A value with its name, or with none."""
        if not self.next_is_assigned():
            return "", self.expression()
        name = self.advance().word
        self.advance()
        return name, self.expression()

    def make_chain(self, parts: list[Build], symbols: list[str], position: int) -> Build:
        first, *others = parts

        def build(scope: _Scope) -> Any:
            value = first(scope)
            for symbol, part in zip(symbols, others, strict=True):
                value = _operate(self.text, position, SYMBOLS[symbol], value, part(scope))
            return value

        return build

    def make_signed(self, signs: list[str], part: Build, position: int) -> Build:
        def build(scope: _Scope) -> Any:
            value = part(scope)
            for sign in reversed(signs):
                if sign in ("!", "not"):
                    value = _operate(self.text, position, "not", value)
                elif sign == "-":
                    value = _operate(self.text, position, "neg", value)
            return value

        return build

    def atom(self) -> Build:
        """Lists, too."""
        if self.token.word != "[":
            return super().atom()
        self.advance()
        parts = self.listed(self.expression, "]")
        return lambda scope: [part(scope) for part in parts]

    def definitions(self) -> list[tuple[Token, Build]]:
        """What stands before the formula's result."""
        found = []
        while self.next_is_assigned():
            name = self.advance()
            self.advance()
            found.append((name, self.expression()))
            self.expect(";")
        return found


def parse_formula(text: str) -> Formula:
    """Read a formula; FormulaError, which marks the column, if its syntax is wrong."""
    reader = _Reader(text)
    named: dict[str, Build] = {}
    with deep_recursion():
        for token, build in reader.definitions():
            if token.word in named:
                raise FormulaError(f"'{token.word}' is defined twice", text, token.position)
            named[token.word] = build
        result = reader.expression()
    if reader.token.word == ";":
        reader.advance()
    reader.expect_end()
    return Formula(text, named, result)
