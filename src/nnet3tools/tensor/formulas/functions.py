"""The table of functions that an expression may apply, with types, derivatives and definitions.

Every backend has an instruction for a primitive. A composite has a `definition` by other functions;
a backend uses it unless it has an instruction. `derivative(value, *arguments)` gives one partial
derivative for each argument; `value` is the applied function itself (tanh' is 1 - value * value).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from nnet3tools.tensor.formulas.expr import (
    COLUMN_REDUCTIONS,
    FUNCTIONS,
    ROW_REDUCTIONS,
    Apply,
    Cast,
    Constant,
    Expr,
    Function,
    Operand,
    as_expr,
)
from nnet3tools.tensor.formulas.types import Rule, Type

Partials = Sequence[Expr]

ALIASES = {
    "if_then_else": "where", "maximum": "max", "minimum": "min", "sign": "sgn", "square": "sqr",
    "lrelu": "leaky_relu", "silu": "swish",
}  # fmt: skip
"""Other name that a formula may use -> name of the function."""

CASTS = {t.value: t for t in Type if not t.is_weak}
"""Name of a function that converts to an element type -> the type."""

_ZERO, _ONE = Constant(0), Constant(1)


def _add(*fields: Any, **more: Any) -> Function:
    """A new Function with these fields, added to FUNCTIONS."""
    made = Function(*fields, **more)
    FUNCTIONS[made.name] = made
    return made


def _flat(*arguments: Expr) -> Partials:
    """Derivatives, all 0, of a piecewise constant function; `arguments`: value, operands."""
    return [_ZERO] * (len(arguments) - 1)


def _truth(condition: Expr) -> Expr:
    """The condition as a truth value: true for a number other than 0."""
    is_truth = isinstance(condition, Apply) and condition.function.rule in (_C, _L)
    return condition if is_truth else ne(condition, 0)


_A, _F, _C, _L = Rule.ARITHMETIC, Rule.FLOAT, Rule.COMPARE, Rule.LOGIC

# -- arithmetic

add = _add("add", 2, _A, "a + b", lambda v, a, b: [_ONE, _ONE], onnx="Add")
sub = _add("sub", 2, _A, "a - b", lambda v, a, b: [_ONE, Constant(-1)], onnx="Sub")
mul = _add("mul", 2, _A, "a * b", lambda v, a, b: [b, a], onnx="Mul")
div = _add(
    "div", 2, _F, "a / b, never an integer division", lambda v, a, b: [1 / b, -v / b], onnx="Div"
)
neg = _add("neg", 1, _A, "-a", lambda v, a: [Constant(-1)], onnx="Neg")
abs_ = _add("abs", 1, _A, "absolute value", lambda v, a: [sgn(a)], onnx="Abs")
sgn: Function = _add("sgn", 1, _A, "-1, 0 or 1, the sign", _flat, onnx="Sign")
sqr = _add("sqr", 1, _A, "a * a", lambda v, a: [2 * a])
max_ = _add(
    "max", 2, _A, "the larger (nan if either is)", lambda v, a, b: [a >= b, a < b], onnx="Max"
)
min_ = _add(
    "min", 2, _A, "the smaller (nan if either is)", lambda v, a, b: [a <= b, a > b], onnx="Min"
)
round_ = _add("round", 1, _A, "to the nearest integer, halves to the even one", _flat, onnx="Round")
floor = _add("floor", 1, _A, "the integer not above", _flat, onnx="Floor")
ceil = _add("ceil", 1, _A, "the integer not below", _flat, onnx="Ceil")

# -- comparisons and logic

lt = _add("lt", 2, _C, "a < b", _flat, onnx="Less")
le = _add("le", 2, _C, "a <= b", _flat, onnx="LessOrEqual")
gt = _add("gt", 2, _C, "a > b", _flat, onnx="Greater")
ge = _add("ge", 2, _C, "a >= b", _flat, onnx="GreaterOrEqual")
eq = _add("eq", 2, _C, "a == b", _flat, onnx="Equal")
ne: Function = _add("ne", 2, _C, "a != b", _flat)
and_ = _add("and", 2, _L, "both are non-zero", _flat, onnx="And")
or_ = _add("or", 2, _L, "either is non-zero", _flat, onnx="Or")
not_ = _add("not", 1, _L, "is zero", _flat, onnx="Not")
where = _add(
    "where",
    3,
    Rule.CHOOSE,
    "a where the condition is non-zero, else b",
    lambda v, c, a, b: [_ZERO, _truth(c), not_(c)],
    onnx="Where",
)

# -- powers, exponentials, trigonometry

sqrt = _add("sqrt", 1, _F, "square root", lambda v, a: [0.5 / v], onnx="Sqrt")
exp: Function = _add("exp", 1, _F, "e to the power a", lambda v, a: [v], onnx="Exp")
log: Function = _add("log", 1, _F, "natural logarithm", lambda v, a: [1 / a], onnx="Log")
sin: Function = _add("sin", 1, _F, "sine", lambda v, a: [cos(a)], onnx="Sin")
cos: Function = _add("cos", 1, _F, "cosine", lambda v, a: [-sin(a)], onnx="Cos")
tan = _add("tan", 1, _F, "tangent", lambda v, a: [1 + sqr(v)], lambda a: sin(a) / cos(a))
tanh = _add("tanh", 1, _F, "hyperbolic tangent", lambda v, a: [1 - sqr(v)], onnx="Tanh")
erf = _add(
    "erf", 1, _F, "error function", lambda v, a: [2 / math.sqrt(math.pi) * exp(-sqr(a))], onnx="Erf"
)
pow_: Function = _add(
    "pow",
    2,
    _F,
    "a to the power b",
    # log(a) only where a > 0, lest a constant power of a negative number give nan
    lambda v, a, b: [b * pow_(a, b - 1), where(a > 0, v * log(where(a > 0, a, 1)), 0)],
    onnx="Pow",
)

# -- clipping and activations

clip = _add(
    "clip",
    3,
    _A,
    "clip(x, low, high): x limited to [low, high]; clip(x, c) is clip(x, -c, c)",
    lambda v, x, low, high: [(x >= low) & (x <= high), x < low, x > high],
    lambda x, low, high: min_(max_(x, low), high),
)
bump = _add("bump", 2, _C, "bump(x, a): 1 where |x| <= a, else 0", _flat, lambda x, a: abs_(x) <= a)
sigmoid: Function = _add(
    "sigmoid", 1, _F, "1 / (1 + exp(-x))", lambda v, x: [v * (1 - v)], onnx="Sigmoid"
)
logaddexp = _add(
    "logaddexp", 2, _F, "log(exp(a) + exp(b))", lambda v, a, b: [sigmoid(a - b), sigmoid(b - a)]
)
softplus = _add(
    "softplus",
    1,
    _F,
    "log(1 + exp(x))",
    lambda v, x: [sigmoid(x)],
    lambda x: logaddexp(x, 0.0),
    onnx="Softplus",
)
# by the value, which may have taken the argument's place in memory: it has the same sign
relu = _add("relu", 1, _A, "max(x, 0)", lambda v, x: [v > 0], lambda x: max_(x, 0))
relu_back = _add("relu_back", 1, _C, "derivative of relu: 1 where x > 0", _flat, lambda x: x > 0)
leaky_relu = _add(
    "leaky_relu",
    1,
    _F,
    "x where x > 0, else 0.01 x",
    lambda v, x: [leaky_relu_back(v)],  # by the value, as relu
    lambda x: max_(x, 0.01 * x),
)
leaky_relu_back: Function = _add(
    "leaky_relu_back",
    1,
    _F,
    "derivative of leaky_relu: 1 where x > 0, else 0.01",
    _flat,
    lambda x: where(x > 0, 1.0, 0.01),
)
prelu = _add(
    "prelu",
    2,
    _F,
    "prelu(x, a): x where x > 0, else a x",
    lambda v, x, a: [prelu_back(x, a), min_(x, 0)],
    lambda x, a: max_(x, 0) + a * min_(x, 0),
)
prelu_back: Function = _add(
    "prelu_back",
    2,
    _F,
    "derivative of prelu by x: 1 where x > 0, else a",
    lambda v, x, a: [_ZERO, x <= 0],
    lambda x, a: where(x > 0, 1.0, a),
)
gelu = _add(
    "gelu",
    1,
    _F,
    "x Phi(x), Phi the normal distribution function (Hendrycks and Gimpel 2016)",
    None,
    lambda x: 0.5 * x * (1.0 + erf(x * math.sqrt(0.5))),
)
swish = _add(
    "swish",
    1,
    _F,
    "x sigmoid(x) (Ramachandran et al. 2017)",
    lambda v, x: [v + sigmoid(x) * (1 - v)],
    lambda x: x * sigmoid(x),
)
highway = _add(
    "highway",
    3,
    _F,
    "highway(a, b, t): a where the gate is open, else b; t is the gate before its sigmoid",
    lambda v, a, b, t: [sigmoid(t), 1 - sigmoid(t), (a - b) * sigmoid(t) * (1 - sigmoid(t))],
    lambda a, b, t: sigmoid(t) * a + (1 - sigmoid(t)) * b,
)

for _name, _doc in (
    ("row_sum", "the sum of the row"),
    ("row_mean", "the mean of the row"),
    ("row_max", "the largest of the row"),
    ("row_min", "the smallest of the row"),
):
    ROW_REDUCTIONS[_name] = Function(_name, 1, _F, _doc)

for _name, _doc in (("col_sum", "the sum of the column"), ("col_mean", "the mean of the column")):
    COLUMN_REDUCTIONS[_name] = Function(_name, 1, Rule.TOTAL, _doc)


def cast(argument: Operand, to: Type) -> Expr:
    """An expression that converts the argument to another element type."""
    return Cast(as_expr(argument), to)
