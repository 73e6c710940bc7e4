"""A formula's instructions as C, one line each."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nnet3tools.tensor.formulas import Expr, Type
from nnet3tools.tensor.formulas.lowered import Target
from nnet3tools.tensor.plain.rewrites import rewrite
from nnet3tools.tensor.source_body import Dialect

__all__ = ["COSTLY", "C_TYPES", "STORED_TYPES", "C", "converted"]

C_TYPES = {
    Type.BOOL: "int", Type.INT32: "s32", Type.UINT32: "u32", Type.FLOAT32: "f32",
    Type.FLOAT64: "f64", Type.WEAK_INT: "i64", Type.WEAK_FLOAT: "f64",
}  # fmt: skip
"""The C type of a value while it is computed with; NumPy calculates with 16-bit floats."""

STORED_TYPES = C_TYPES | {Type.BOOL: "u8"}
"""The C type of an array's elements."""

# f stands for the suffix of the float type: "f" for float, nothing for double (and integers, which
# 53 bits hold)
_CALLS: dict[str, str] = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "neg": "-{0}",
    "abs": "fabs{f}({0})", "sgn": "nn_sgn{f}({0})", "sqr": "{0} * {0}",
    "max": "nn_max{f}({0}, {1})", "min": "nn_min{f}({0}, {1})", "round": "rint{f}({0})",
    "floor": "floor{f}({0})", "ceil": "ceil{f}({0})", "lt": "{0} < {1}", "le": "{0} <= {1}",
    "gt": "{0} > {1}", "ge": "{0} >= {1}", "eq": "{0} == {1}", "ne": "{0} != {1}",
    "and": "{0} && {1}", "or": "{0} || {1}", "not": "!{0}", "where": "{0} ? {1} : {2}",
    "sqrt": "sqrt{f}({0})", "sin": "sin{f}({0})", "cos": "cos{f}({0})", "pow": "pow{f}({0}, {1})",
    "exp": "nn_exp{f}({0})", "log": "nn_log{f}({0})", "tanh": "nn_tanh{f}({0})", "erf": "erf({0})",
    "sigmoid": "nn_sigmoid{f}({0})", "logaddexp": "nn_logaddexp({0}, {1})",
}  # fmt: skip

COSTLY = frozenset({"exp", "log", "tanh", "sigmoid", "pow", "sin", "cos", "logaddexp", "div"})
"""Functions whose values are better kept than computed again."""


def literal(value: float, held_in: str) -> str:
    """A constant as C text of the given type, exact."""
    if held_in in ("int", "s32", "u32", "i64"):
        return f"(({held_in})INT64_C({int(value)}))"
    if held_in == "f32":
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    if math.isnan(value) or math.isinf(value):
        text = "NAN" if math.isnan(value) else "INFINITY"
        return f"((f64)-{text})" if value < 0 else f"(({held_in}){text})"
    return f"({value!r}{'f' if held_in == 'f32' else ''})"


def converted(value: str, held: str, to: str) -> str:
    """A value as another C type."""
    if held == to:
        return value
    return f"({value} != 0)" if to == "int" else f"({to})({value})"


def _rewrite(name: str, compute: Type) -> Callable[..., Expr] | None:
    """NumPy's own definitions of what float32 has only as calls into the C library."""
    single = compute is Type.FLOAT32 and name in ("erf", "logaddexp")
    return rewrite(name, compute) if single else None


C = Dialect(C_TYPES, _CALLS, literal, converted, Target("native", frozenset(_CALLS), _rewrite))
