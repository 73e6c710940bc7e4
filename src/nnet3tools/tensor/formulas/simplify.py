"""Simplification of expressions: fold constants, drop neutral elements, replace small powers.

The simplified expression has the same value for all finite operands. `0 * x` becomes 0 although x
may be infinite, because derivatives contain such terms. Types stay: only plain numbers (weak types,
see types.py) are dropped or folded.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from nnet3tools.tensor.formulas.expr import Apply, Cast, Constant, Expr, Number
from nnet3tools.tensor.formulas.functions import FUNCTIONS
from nnet3tools.tensor.formulas.types import Rule

_FOLD: dict[str, Callable[..., Number]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "neg": operator.neg, "abs": abs, "sqr": lambda a: a * a, "max": max, "min": min,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "eq": operator.eq, "ne": operator.ne, "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b), "not": operator.not_, "sqrt": math.sqrt,
    "exp": math.exp, "log": math.log, "sin": math.sin,
    "cos": math.cos, "tanh": math.tanh, "erf": math.erf,
    "pow": lambda a, b: float(a) ** b,
}  # fmt: skip


def _number(node: Expr) -> Number | None:
    """The value of a node that is a numeric constant; None for other nodes and truth values."""
    if isinstance(node, Constant) and not isinstance(node.value, bool):
        return node.value
    return None


def _fold(name: str, arguments: tuple[Expr, ...]) -> Expr | None:
    values = [a.value for a in arguments if isinstance(a, Constant)]
    if len(values) != len(arguments) or name not in _FOLD:
        return None
    try:
        folded = _FOLD[name](*values)
    except (ValueError, ArithmeticError):
        return None
    if isinstance(folded, complex) or (isinstance(folded, int) and abs(folded) >= 1 << 31):
        return None
    return Constant(folded)


def _add(a: Expr, b: Expr) -> Expr | None:
    if _number(a) == 0:
        return b
    if _number(b) == 0:
        return a
    if isinstance(b, Apply) and b.function.name == "neg":
        return a - b.arguments[0]
    return None


def _sub(a: Expr, b: Expr) -> Expr | None:
    if _number(b) == 0:
        return a
    if _number(a) == 0:
        return -b
    if isinstance(b, Apply) and b.function.name == "neg":
        return a + b.arguments[0]
    return None


def _mul(a: Expr, b: Expr) -> Expr | None:
    for one, other in ((a, b), (b, a)):
        value = _number(one)
        if value == 0:
            return Constant(0)
        if value == 1 and not _is_bool(other):
            return other
        if value == -1 and not _is_bool(other):
            return -other
    return FUNCTIONS["sqr"](a) if a is b and not _is_bool(a) else None


def _is_bool(node: Expr) -> bool:
    """Whether the node is a truth value, so that arithmetic on it would give integers."""
    if isinstance(node, Constant):
        return isinstance(node.value, bool)
    return isinstance(node, Apply) and node.function.rule in (Rule.COMPARE, Rule.LOGIC)


def _div(a: Expr, b: Expr) -> Expr | None:
    return Constant(0) if _number(a) == 0 else None


def _neg(a: Expr) -> Expr | None:
    if isinstance(a, Apply) and a.function.name == "neg":
        return a.arguments[0]
    if isinstance(a, Apply) and a.function.name == "sub":
        return a.arguments[1] - a.arguments[0]
    return None


def _pow(a: Expr, b: Expr) -> Expr | None:
    sqr, sqrt = FUNCTIONS["sqr"], FUNCTIONS["sqrt"]
    cheap: dict[Number, Callable[[], Expr]] = {
        0: lambda: Constant(1.0),
        1: lambda: a,
        2: lambda: sqr(a),
        3: lambda: a * sqr(a),
        4: lambda: sqr(sqr(a)),
        0.5: lambda: sqrt(a),
        -0.5: lambda: 1.0 / sqrt(a),
        -1: lambda: 1.0 / a,
        -2: lambda: 1.0 / sqr(a),
    }
    exponent = _number(b)
    return cheap[exponent]() if exponent is not None and exponent in cheap else None


def _where(c: Expr, a: Expr, b: Expr) -> Expr | None:
    if isinstance(c, Constant):
        return a if c.value else b
    return a if a is b else None


_RULES: dict[str, Callable[..., Expr | None]] = {
    "add": _add, "sub": _sub, "mul": _mul, "div": _div, "neg": _neg, "pow": _pow, "where": _where,
}  # fmt: skip


def _step(node: Apply) -> Expr:
    """The node simplified by the rules of its function; its arguments are simplified already."""
    if (folded := _fold(node.function.name, node.arguments)) is not None:
        return folded
    rule = _RULES.get(node.function.name)
    better = rule(*node.arguments) if rule is not None else None
    if better is None:
        return node
    return _step(better) if isinstance(better, Apply) else better


def simplify(expr: Expr, made: dict[Expr, Expr] | None = None) -> Expr:
    """The simplified expression, which is never larger.

    `made` maps nodes to simplified nodes and is extended. A caller that simplifies a growing
    expression step by step passes the same dictionary, so that the time stays linear.
    """
    made = {} if made is None else made
    for node in expr.walk(made):
        new = node.rebuild([made[a] for a in node.arguments])
        if isinstance(new, Cast) and isinstance(new.arguments[0], Cast):
            inner = new.arguments[0]
            new = inner if inner.to is new.to else new
        made[node] = _step(new) if isinstance(new, Apply) else new
        made.setdefault(made[node], made[node])
    return made[expr]
