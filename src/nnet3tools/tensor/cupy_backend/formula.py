"""Expressions as CUDA C++: the same typing rules as on NumPy, one line for each distinct node.

float16 is computed in float32 and rounded where it is stored; plain numbers are computed in 64 bits
until they meet an array's type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from nnet3tools.tensor.functional import Apply, Cast, Constant, Expr, Placeholder, Rule, Type
from nnet3tools.tensor.functional.types import compute_type, result_type
from nnet3tools.tensor.registry import UnsupportedOperator

__all__ = ["C_TYPES", "STORED_TYPES", "Body", "literal"]

C_TYPES = {
    Type.BOOL: "bool", Type.INT32: "int", Type.UINT32: "unsigned", Type.FLOAT16: "float",
    Type.FLOAT32: "float", Type.FLOAT64: "double", Type.WEAK_INT: "long long",
    Type.WEAK_FLOAT: "double",
}  # fmt: skip
"""What a value of a type is held in while it is computed with."""

STORED_TYPES = C_TYPES | {Type.FLOAT16: "__half"}
"""What arrays hold."""

# f stands for the suffix of the float type: "f" for float, nothing for double
_CALLS: dict[str, str] = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "neg": "-{0}",
    "abs": "nn_abs({0})", "sgn": "nn_sgn({0})", "sqr": "{0} * {0}", "max": "nn_max({0}, {1})",
    "min": "nn_min({0}, {1})", "round": "rint{f}({0})", "floor": "floor{f}({0})",
    "ceil": "ceil{f}({0})", "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}",
    "ge": "{0} >= {1}", "eq": "{0} == {1}", "ne": "{0} != {1}", "and": "{0} && {1}",
    "or": "{0} || {1}", "not": "!{0}", "where": "{0} ? {1} : {2}", "sqrt": "sqrt{f}({0})",
    "exp": "exp{f}({0})", "log": "log{f}({0})", "sin": "sin{f}({0})", "cos": "cos{f}({0})",
    "tanh": "tanh{f}({0})", "erf": "erf{f}({0})", "pow": "pow{f}({0}, {1})",
    "sigmoid": "nn_sigmoid({0})", "logaddexp": "nn_logaddexp({0}, {1})",
}  # fmt: skip


def literal(value: float, held_in: str) -> str:
    """A constant as C++ text of the given C++ type, exact."""
    if held_in == "bool":
        return "true" if value else "false"
    if held_in in ("int", "unsigned", "long long"):
        return f"({held_in})({int(value)}LL)"
    if held_in == "float":
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    if math.isnan(value) or math.isinf(value):
        bits = 0x7FC00000 if math.isnan(value) else 0x7F800000
        text = f"(({held_in})__int_as_float({bits:#x}))"
        return f"(-{text})" if value < 0 else text
    return f"{value!r}f" if held_in == "float" else repr(value)


@dataclass
class Body:
    """Lines of C++ that compute expressions; `types` are those of the operands, from `_1` on.

    Operands are the variables `x1`, `x2`, ... of their computing types.
    """

    types: Sequence[Type]
    lines: list[str] = field(default_factory=list)
    _done: dict[Expr, tuple[str, str]] = field(default_factory=dict)

    def add(self, expr: Expr) -> tuple[str, str]:
        """Name and C++ type of the variable that holds an expression's value."""
        known = {i + 1: t for i, t in enumerate(self.types)}
        types: dict[Expr, Type] = {}
        for node in expr.walk():
            if isinstance(node, Apply):
                types[node] = result_type(node.function.rule, [types[a] for a in node.arguments])
            else:
                types[node] = node.type(known)
            if node not in self._done:
                self._done[node] = self._node(node, types)
        return self._done[expr]

    def _node(self, node: Expr, types: dict[Expr, Type]) -> tuple[str, str]:
        if isinstance(node, Placeholder):
            return f"x{node.number}", C_TYPES[types[node]]
        if isinstance(node, Constant):
            held_in = C_TYPES[types[node]]
            return literal(node.value, held_in), held_in
        if isinstance(node, Cast):
            given, held = self._done[node.arguments[0]]
            value = self.converted(given, held, C_TYPES[node.to])
            if node.to is Type.FLOAT16:
                value = f"__half2float(__float2half({value}))"
            return self._variable(C_TYPES[node.to], value)
        assert isinstance(node, Apply)
        return self._apply(node, [types[a] for a in node.arguments])

    def _apply(self, node: Apply, argument_types: list[Type]) -> tuple[str, str]:
        function = node.function
        compute = compute_type(function.rule, argument_types)
        held_in = C_TYPES[compute]
        given = [self._done[a] for a in node.arguments]
        call = _CALLS.get(function.name)
        if call is None:
            if function.definition is None:
                raise UnsupportedOperator(function.name, compute.value, "cupy")
            return self._expand(function.definition, function.rule, held_in, given)
        if function.rule is Rule.LOGIC:
            values = [self.converted(*g, "bool") for g in given]
            return self._variable("bool", call.format(*values))
        if function.rule is Rule.CHOOSE:
            condition = self.converted(*given[0], "bool")
            values = [condition, *(self.converted(*g, held_in) for g in given[1:])]
        else:
            values = [self.converted(*g, held_in) for g in given]
        if function.name in ("round", "floor", "ceil") and not compute.is_float:
            return self._variable(held_in, values[0])
        result = "bool" if function.rule is Rule.COMPARE else held_in
        return self._variable(result, call.format(*values, f="f" if held_in == "float" else ""))

    def _expand(
        self,
        definition: Callable[..., Expr],
        rule: Rule,
        held_in: str,
        given: list[tuple[str, str]],
    ) -> tuple[str, str]:
        """A function's definition, written out over the values of its arguments."""
        if rule is not Rule.LOGIC:
            given = [
                self._variable(held_in, self.converted(value, held, held_in))
                for value, held in given
            ]
        by_name = {c: t for t, c in C_TYPES.items() if t is not Type.FLOAT16}
        inner = _Inner([by_name[held] for _, held in given], self.lines, values=given)
        holders = [Placeholder(i + 1) for i in range(len(given))]
        return inner.add(definition(*holders))

    @staticmethod
    def converted(value: str, held: str, to: str) -> str:
        """A value as another C++ type."""
        if held == to:
            return value
        return f"({value} != 0)" if to == "bool" else f"({to})({value})"

    def _variable(self, held_in: str, value: str) -> tuple[str, str]:
        name = f"v{len(self.lines)}"
        self.lines.append(f"const {held_in} {name} = {value};")
        return name, held_in


@dataclass
class _Inner(Body):
    """The body of a definition, whose operands are values of another body."""

    values: list[tuple[str, str]] = field(default_factory=list)

    def _node(self, node: Expr, types: dict[Expr, Type]) -> tuple[str, str]:
        if isinstance(node, Placeholder):
            return self.values[node.number - 1]
        return super()._node(node, types)
