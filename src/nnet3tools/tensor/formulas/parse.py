"""Assignments of expressions to placeholders, and the reader of formulas in our own source.

A formula is an expression in Python's syntax, read by `ast` (nothing is run), or statements
separated by `;`: assignments to placeholders (`_1 = ...`, `_1 += ...`, also -= *= /=) and to local
names (`gate = sigmoid(_2)`), each seeing the ones before it. Users' formulas are read by
nnet3tools.grammars.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Mapping

from nnet3tools.errors import ProgramError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.tensor.formulas.expr import (
    Apply,
    Cast,
    Constant,
    Expr,
    Function,
    Operand,
    Placeholder,
    as_expr,
)
from nnet3tools.tensor.formulas.functions import (
    ALIASES,
    CASTS,
    COLUMN_REDUCTIONS,
    FUNCTIONS,
    ROW_REDUCTIONS,
)

CONSTANTS = {"true": True, "false": False, "inf": math.inf, "nan": math.nan, "pi": math.pi}
_CALLABLE = FUNCTIONS | ROW_REDUCTIONS | COLUMN_REDUCTIONS

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow",
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
    ast.And: "and", ast.Or: "or",
}  # fmt: skip
"""Operator of Python -> the function that it stands for."""

Names = Mapping[str, Expr]


@dataclass(frozen=True)
class Assignments:
    """Values to assign to placeholders, as expressions of the operands' old contents."""

    items: tuple[tuple[Placeholder, Expr], ...]

    @functools.cached_property
    def targets(self) -> list[int]:
        """The numbers of the assigned placeholders, in order."""
        return [operand.number for operand, _ in self.items]

    def values(self) -> dict[Expr, Expr]:
        """The new value of each assigned placeholder."""
        return dict(self.items)

    def then(self, later: Assignments) -> Assignments:
        """These and `later` assignments; of two for one placeholder, only the later one stays."""
        return Assignments(tuple((self.values() | later.values()).items()))  # type: ignore[arg-type]

    def num_operands(self) -> int:
        """The highest placeholder number: the number of operands that an operator needs."""
        used = [n for _, value in self.items for n in value.placeholders()]
        return max([*used, *self.targets])

    @functools.cached_property
    def reduces_rows(self) -> bool:
        """Whether a value contains a row reduction, so that a row cannot be divided into parts."""
        return self._applies(ROW_REDUCTIONS)

    @functools.cached_property
    def reduces_columns(self) -> bool:
        """Whether a value contains a column reduction, which needs all rows before it is known."""
        return self._applies(COLUMN_REDUCTIONS)

    def _applies(self, functions: Mapping[str, Function]) -> bool:
        nodes = (node for _, value in self.items for node in value.walk())
        return any(isinstance(n, Apply) and n.function.name in functions for n in nodes)

    def text(self) -> str:
        """The assignments as formula text."""
        return "; ".join(f"{target.text()} = {value.text()}" for target, value in self.items)


def assign(target: Placeholder, value: Operand) -> Assignments:
    """Assignments with the single assignment `target = value`."""
    return Assignments(((target, as_expr(value)),))


class FormulaError(ProgramError):
    """The text of a formula cannot be read."""


def parse(text: str, names: Names | None = None) -> Expr:
    """The expression of formula text (else FormulaError); `names` maps names to expressions."""
    body = _body(text)
    if len(body) != 1 or not isinstance(body[0], ast.Expr):
        raise FormulaError(f"expected an expression, found: {text}")
    return _Reader(text, names or {}).read(body[0].value)


def parse_statements(text: str, names: Names | None = None) -> Assignments:
    """The assignments in text like "_1 = 2 * x" (`names`: x -> Expr); FormulaError if none."""
    known = dict(names or {})
    done = Assignments(())
    for statement in _body(text):
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            name: ast.expr = statement.targets[0]
        elif isinstance(statement, ast.AugAssign) and type(statement.op) in _OPERATORS:
            name = statement.target
        else:
            raise FormulaError(f"expected an assignment, found: {ast.unparse(statement)}")
        if not isinstance(name, ast.Name):
            raise FormulaError(f"expected a name before '=', found: {ast.unparse(name)}")
        value = _Reader(text, known, done.values()).read(statement.value)
        target = known.get(name.id, _placeholder(name.id))
        if isinstance(target, Placeholder):
            if isinstance(statement, ast.AugAssign):
                before = done.values().get(target, target)
                value = FUNCTIONS[_OPERATORS[type(statement.op)]](before, value)
            done = done.then(assign(target, value))
        elif isinstance(statement, ast.AugAssign):
            raise FormulaError(f"'{name.id}' has no value to change in: {text}")
        else:
            known[name.id] = value
    if not done.targets:
        raise FormulaError(f"no placeholder is assigned in: {text}")
    return done


def _body(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text.strip()).body
    except SyntaxError as error:
        raise FormulaError(f"{error.msg} at column {error.offset} of: {text}") from None


def _placeholder(name: str) -> Placeholder | None:
    """The placeholder that a name such as `_2` stands for; None for other names."""
    if name[0] == "_" and name[1:].isdigit() and name[1] != "0":
        return Placeholder(int(name[1:]))
    return None


class _Reader:
    """Turns nodes of Python's syntax tree into expressions; FormulaError for unknown nodes."""

    def __init__(
        self, text: str, names: Names, assigned: Mapping[Expr, Expr] | None = None
    ) -> None:
        """Store a text, expressions by name, and placeholders' values from earlier statements."""
        self._text, self._names, self._assigned = text, names, assigned or {}

    def read(self, node: ast.expr) -> Expr:
        """The expression that a syntax-tree node stands for."""
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
            return Constant(node.value)
        if isinstance(node, ast.Name):
            return self._named(node.id)
        if isinstance(node, ast.UnaryOp):
            return self._signed(node)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            function = FUNCTIONS[_OPERATORS[type(node.op)]]
            return function(self.read(node.left), self.read(node.right))
        if isinstance(node, ast.BoolOp):
            function = FUNCTIONS[_OPERATORS[type(node.op)]]
            return functools.reduce(function, map(self.read, node.values))
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            if (name := _OPERATORS.get(type(node.ops[0]))) is not None:
                return FUNCTIONS[name](self.read(node.left), self.read(node.comparators[0]))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._call(node.func.id, [self.read(argument) for argument in node.args])
        raise FormulaError(f"formulas have no '{ast.unparse(node)}': {self._text}")

    def _named(self, name: str) -> Expr:
        if (value := self._names.get(name, _placeholder(name))) is not None:
            return self._assigned.get(value, value)
        if name in CONSTANTS:
            return Constant(CONSTANTS[name])
        raise FormulaError(f"unknown name '{name}' in: {self._text}")

    def _signed(self, node: ast.UnaryOp) -> Expr:
        value = self.read(node.operand)
        if isinstance(node.op, ast.Not):
            return FUNCTIONS["not"](value)
        if isinstance(node.op, ast.UAdd):
            return value
        if isinstance(node.op, ast.USub):
            # -2 is the number, so that printed expressions read back to the same tree
            is_number = isinstance(value, Constant) and not isinstance(value.value, bool)
            return Constant(-value.value) if is_number else -value  # type: ignore[attr-defined]
        raise FormulaError(f"formulas have no '{ast.unparse(node)}': {self._text}")

    def _call(self, name: str, arguments: list[Expr]) -> Expr:
        target = ALIASES.get(name, name)
        if target == "clip" and len(arguments) == 2:
            arguments = [arguments[0], -arguments[1], arguments[1]]
        make: Callable[..., Expr]
        if target in CASTS:
            arity, make = 1, functools.partial(Cast, to=CASTS[target])
        elif (function := _CALLABLE.get(target)) is not None:
            arity, make = function.arity, function
        else:
            raise FormulaError(f"unknown function '{name}' in: {self._text}")
        if len(arguments) != arity:
            raise FormulaError(
                f"function {name} takes {arity} arguments, found {len(arguments)}: {self._text}"
            )
        return make(*arguments)
