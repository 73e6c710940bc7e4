"""A formula's instructions as CUDA C++, one line each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from nnet3tools.tensor.functional import Expr, Type
from nnet3tools.tensor.functional.lowered import Instruction, Kind, Lowering, Target, used

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


_TARGET = Target("cupy", frozenset(_CALLS))


@dataclass
class Body:
    """Lines of C++ that compute expressions; `types` are those of the operands, from `_1` on.

    Operands are the variables `x1`, `x2`, ... of their computing types.
    """

    types: Sequence[Type]
    lines: list[str] = field(default_factory=list)
    _names: dict[Instruction, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lowering = Lowering(self.types, _TARGET)

    def add(self, expr: Expr) -> tuple[str, str]:
        """Name and C++ type of the variable that holds an expression's value."""
        root = self._lowering.lower(expr)
        for instruction in used(self._lowering.instructions, [root]):
            if instruction not in self._names:
                self._names[instruction] = self._emit(instruction)
        return self._names[root], C_TYPES[root.type]

    def _emit(self, instruction: Instruction) -> str:
        """The text of an instruction's value, after the line that computes it if it needs one."""
        held_in = C_TYPES[instruction.type]
        given = [self._names[v] for v in instruction.inputs]
        if instruction.kind is Kind.OPERAND:
            return f"x{instruction.number + 1}"
        if instruction.kind is Kind.CONSTANT:
            return literal(instruction.value, held_in)
        if instruction.kind is Kind.CAST:
            value = self.converted(given[0], C_TYPES[instruction.inputs[0].type], held_in)
            if instruction.type is Type.FLOAT16:
                value = f"__half2float(__float2half({value}))"
        else:
            suffix = "f" if C_TYPES[instruction.inputs[0].type] == "float" else ""
            value = _CALLS[instruction.name].format(*given, f=suffix)
        name = f"v{len(self.lines)}"
        self.lines.append(f"const {held_in} {name} = {value};")
        return name

    @staticmethod
    def converted(value: str, held: str, to: str) -> str:
        """A value as another C++ type."""
        if held == to:
            return value
        return f"({value} != 0)" if to == "bool" else f"({to})({value})"
