"""Building expression graphs from formula text, with errors that give the column.

`name = expression; ...; expression`: the last expression is the value. Definitions may come in any
order, each name once. Functions are those of this package under NumPy's names: sum, mean, var, std,
max, min, prod and logsumexp take `axis=` (without it they reduce all elements; max and min of two
operands are elementwise).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nnet3tools import tensor
from nnet3tools.errors import TextError
from nnet3tools.expression.elementwise import apply
from nnet3tools.expression.formula_functions import CALLABLE, call_function
from nnet3tools.expression.graph import Graph
from nnet3tools.expression.node import Node
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.grammars.formula import Call, Chain, List, Name, Number, Power, Tree, read_formula
from nnet3tools.grammars.reading import MAX_LEVELS, deep_recursion
from nnet3tools.tensor.formulas import FUNCTIONS, Constant, simplify
from nnet3tools.tensor.formulas.parse import CONSTANTS

_OPERATORS = {
    "+": "add", "-": "sub", "*": "mul", "/": "div",
    "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne",
    "&&": "and", "&": "and", "and": "and", "||": "or", "|": "or", "or": "or",
}  # fmt: skip
"""Infix operator -> name of the function."""

_SIGNS = {"-": "neg", "!": "not", "not": "not"}


class Formula:
    """A parsed formula, which can be built in any number of graphs."""

    def __init__(self, text: str) -> None:
        """Parse a formula; TextError, which marks the column, if the text is malformed."""
        self.text = text
        read = read_formula(text)
        self.definitions, self.result = read.definitions, read.result

    def build(self, graph: Graph, names: Mapping[str, Node | float]) -> Node:
        """Add the formula to a graph and return the node of its value.

        `names` has the nodes or numbers that names in the text stand for. TextError, which marks
        the column, for unknown names and functions, operands that do not fit, and definitions that
        depend on themselves.
        """
        for name in self.definitions:
            if name in names:
                raise self.error(f"'{name}' cannot be defined anew", 0)
        builder = _Builder(self, names)
        with deep_recursion():
            for name in self.definitions:
                builder.look_up(Name(name, 0))
            value = builder.value(self.result)
        if isinstance(value, (bool, int, float)):
            value = graph.constant(float(value))
        if not isinstance(value, Node):
            raise self.error("the formula's value is not a single expression", 0)
        return value

    def error(self, message: str, position: int) -> TextError:
        """Make a TextError that marks a position in the text of this formula."""
        return TextError(message, self.text, position, "formula")


class _Builder:
    """Builds the nodes of one formula in one graph; definitions are built at their first use."""

    def __init__(self, formula: Formula, operands: Mapping[str, Any]) -> None:
        self._formula, self._operands = formula, operands
        self._built: dict[str, Any] = {}
        self._being_built: list[str] = []

    def look_up(self, use: Name) -> Any:
        """The value of the name `use`; TextError if it is unknown or depends on itself."""
        name, definitions = use.name, self._formula.definitions
        if name in self._operands:
            return self._operands[name]
        if name in self._built:
            return self._built[name]
        if name not in definitions:
            if name in CONSTANTS:
                return CONSTANTS[name]
            raise self._unknown("name", use, [*self._operands, *definitions, *CONSTANTS])
        if name in self._being_built:
            cycle = [*self._being_built[self._being_built.index(name) :], name]
            raise self._formula.error(f"cycle: {' -> '.join(cycle)}", use.position)
        if len(self._being_built) == MAX_LEVELS:
            problem = f"more than {MAX_LEVELS} definitions in turn that use later ones"
            raise self._formula.error(problem, use.position)
        self._being_built.append(name)
        self._built[name] = self.value(definitions[name])
        self._being_built.pop()
        return self._built[name]

    def value(self, tree: Tree) -> Any:
        """The node, number or list that results from evaluating a syntax tree."""
        match tree:
            case Number(value):
                return value
            case Name():
                return self.look_up(tree)
            case List(items):
                return [self.value(item) for item in items]
            case Call():
                return self._call(tree)
            case Chain(first, rest, position):
                value = self.value(first)
                for operator, operand in rest:
                    function = _OPERATORS[operator]
                    value = self._apply(position, function, value, self.value(operand))
                return value
            case Power(operands, position):
                return self._power(operands, position)

    def _power(self, operands: tuple[tuple[tuple[str, ...], Tree], ...], position: int) -> Any:
        values = [self.value(operand) for _, operand in operands]
        result = None
        for (signs, _), value in zip(reversed(operands), reversed(values), strict=True):
            result = value if result is None else self._apply(position, "pow", value, result)
            for sign in reversed(signs):
                if sign in _SIGNS:
                    result = self._apply(position, _SIGNS[sign], result)
        return result

    def _call(self, call: Call) -> Any:
        values = [self.value(value) for key, value in call.arguments if not key]
        options = {key: self.value(value) for key, value in call.arguments if key}
        name = call.function
        if name not in CALLABLE:
            raise self._unknown("function", Name(name, call.position), CALLABLE)
        if any(isinstance(v, (Node, list)) for v in [*values, *options.values()]):
            return self._at(call.position, lambda: call_function(name, values, options))
        if name not in FUNCTIONS or options or len(values) != FUNCTIONS[name].arity:
            raise self._formula.error(f"{name} needs an operand that is no number", call.position)
        return self._apply(call.position, name, *values)

    def _apply(self, position: int, function: str, *operands: Any) -> Any:
        """Apply an elementwise function; numbers give a number. Errors mark `position`."""
        if any(isinstance(o, Node) for o in operands):
            return self._at(position, lambda: apply(function, *operands))
        if any(not isinstance(o, (bool, int, float)) for o in operands):
            raise self._formula.error(f"cannot compute with {operands[0]!r}", position)
        number = simplify(FUNCTIONS[function](*operands))
        if isinstance(number, Constant):
            return number.value
        value = tensor.empty((1,), dtype="float64")
        tensor.element(number)(value)
        return float(value[0])

    def _at(self, position: int, make: Callable[[], Any]) -> Any:
        """Call `make` and return its result; ExpressionError becomes TextError at `position`."""
        try:
            return make()
        except TextError:
            raise
        except ExpressionError as error:
            raise self._formula.error(str(error), position) from None

    def _unknown(self, kind: str, use: Name, known: Iterable[str]) -> TextError:
        """An error "unknown `kind` 'name'", which suggests the most similar name of `known`."""
        import difflib

        near = difflib.get_close_matches(use.name, list(known), n=1, cutoff=0.5)
        hint = f" (nearest known: {near[0]})" if near else ""
        return self._formula.error(f"unknown {kind} '{use.name}'{hint}", use.position)
