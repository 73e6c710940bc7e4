"""The reader of formulas of placeholders, and what their parts are built to."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from nnet3tools.tensor.formulas.expr import Cast, Constant, Expr, Placeholder
from nnet3tools.tensor.formulas.formula_error import FormulaError
from nnet3tools.tensor.formulas.functions import (
    ALIASES,
    CASTS,
    COLUMN_REDUCTIONS,
    FUNCTIONS,
    ROW_REDUCTIONS,
)
from nnet3tools.tensor.formulas.grammar import (
    CONSTANTS,
    SYMBOLS,
    FormulaReader,
    Token,
    deep_recursion,
)

__all__ = ["Build", "read_expression", "read_statements"]

Build = Callable[[Mapping[str, Expr]], Expr]
"""What a subformula is read to: it makes the expression, once names have values."""


_FUNCTIONS = FUNCTIONS | ROW_REDUCTIONS | COLUMN_REDUCTIONS
_ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=")


def _unknown(kind: str, name: str, known: list[str], text: str, position: int) -> FormulaError:
    import difflib

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f" (nearest known: {near[0]})" if near else ""
    return FormulaError(f"unknown {kind} '{name}'{hint}", text, position)


class _Reader(FormulaReader[Build]):
    def make_number(self, value: float) -> Build:
        node = Constant(value)
        return lambda names: node

    def make_name(self, name: str, position: int) -> Build:
        def build(names: Mapping[str, Expr]) -> Expr:
            if name in names:
                return names[name]
            if name[0] == "_" and name[1:].isdigit() and name[1] != "0":
                return Placeholder(int(name[1:]))
            if name in CONSTANTS:
                return Constant(CONSTANTS[name])
            raise _unknown("name", name, [*names, *CONSTANTS], self.text, position)

        return build

    def call(self, name: Token) -> Build:
        arguments = self.listed(self.expression, ")")

        def build(names: Mapping[str, Expr]) -> Expr:
            values = [argument(names) for argument in arguments]
            return _apply(name.word, values, self.text, name.position)

        return build

    def make_chain(self, parts: list[Build], symbols: list[str], position: int) -> Build:
        first, *others = parts

        def build(names: Mapping[str, Expr]) -> Expr:
            value = first(names)
            for symbol, part in zip(symbols, others, strict=True):
                value = FUNCTIONS[SYMBOLS[symbol]](value, part(names))
            return value

        return build

    def make_signed(self, signs: list[str], part: Build, position: int) -> Build:
        def build(names: Mapping[str, Expr]) -> Expr:
            value = part(names)
            for sign in reversed(signs):
                if sign in ("!", "not"):
                    value = FUNCTIONS["not"](value)
                elif sign == "-":
                    value = _minus(value)
            return value

        return build

    def statements(self) -> list[tuple[int, str, str, Build]]:
        """Assignments separated by `;`, which may stand behind the last one, too."""
        found = [self._statement()]
        while self.token.word == ";":
            self.advance()
            if self.token.kind != "end":
                found.append(self._statement())
        return found

    def _statement(self) -> tuple[int, str, str, Build]:
        name = self.expect_name()
        if self.token.word not in _ASSIGNMENTS:
            self.expected(f"one of {' '.join(_ASSIGNMENTS)}")
        return name.position, name.word, self.advance().word, self.expression()


def _minus(value: Expr) -> Expr:
    """-2 is the number, so that what is printed reads back to the same tree."""
    if isinstance(value, Constant) and not isinstance(value.value, bool):
        return Constant(-value.value)
    return -value


def _apply(name: str, arguments: list[Expr], text: str, position: int) -> Expr:
    """The node of a call."""
    target = ALIASES.get(name, name)
    if target == "clip" and len(arguments) == 2:
        arguments = [arguments[0], -arguments[1], arguments[1]]
    make: Callable[..., Expr]
    if target in CASTS:
        arity, make = 1, functools.partial(Cast, to=CASTS[target])
    elif (function := _FUNCTIONS.get(target)) is not None:
        arity, make = function.arity, function
    else:
        known = [*_FUNCTIONS, *ALIASES, *CASTS]
        raise _unknown("function", name, known, text, position)
    if len(arguments) != arity:
        raise FormulaError(
            f"function {name} takes {arity} arguments, found {len(arguments)}", text, position
        )
    return make(*arguments)


def read_expression(text: str) -> Build:
    """A formula's expression, to be built; FormulaError if it is not well formed."""
    reader = _Reader(text)
    with deep_recursion():
        expression = reader.expression()
    reader.expect_end()
    return expression


def read_statements(text: str) -> list[tuple[int, str, str, Build]]:
    """Assignments as (position, name, sign such as "+=", value); FormulaError as above."""
    reader = _Reader(text)
    with deep_recursion():
        statements = reader.statements()
    reader.expect_end()
    return statements
