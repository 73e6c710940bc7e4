"""A formula's instructions as CUDA C++, one line each."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnet3tools.tensor import source_body
from nnet3tools.tensor.formulas import Type
from nnet3tools.tensor.formulas.lowered import Target
from nnet3tools.tensor.source_body import Dialect

__all__ = ["C_TYPES", "STORED_TYPES", "Body", "literal", "load", "stored"]

C_TYPES = {
    Type.BOOL: "bool", Type.INT32: "int", Type.UINT32: "unsigned", Type.FLOAT16: "float",
    Type.FLOAT32: "float", Type.FLOAT64: "double", Type.WEAK_INT: "long long",
    Type.WEAK_FLOAT: "double",
}  # fmt: skip
"""The C++ type of a value while it is computed with."""

STORED_TYPES = C_TYPES | {Type.FLOAT16: "__half"}
"""The C++ type of an array's elements."""

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


def converted(value: str, held: str, to: str) -> str:
    """A value as another C++ type."""
    if held == to:
        return value
    return f"({value} != 0)" if to == "bool" else f"({to})({value})"


_DIALECT = Dialect(
    C_TYPES, _CALLS, literal, converted, Target("cupy", frozenset(_CALLS)),
    half="__half2float(__float2half({0}))",
)  # fmt: skip


class Body(source_body.Body):
    """Lines of CUDA C++ that compute expressions; `types` are those of the operands."""

    def __init__(self, types: Sequence[Type]) -> None:
        super().__init__(types, _DIALECT)


def load(number: int, element_type: Type, place: str) -> str:
    """The line that loads an operand (from 0) from its place in memory."""
    value = f"__half2float({place})" if element_type is Type.FLOAT16 else place
    return f"const {C_TYPES[element_type]} x{number + 1} = {value};"


def stored(element_type: Type, value: str, held: str) -> str:
    """A value of a C++ type as an array of an element type stores it."""
    if element_type is Type.FLOAT16:
        return f"__float2half({converted(value, held, 'float')})"
    return converted(value, held, C_TYPES[element_type])
