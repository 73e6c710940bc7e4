"""Expressions as formula text, with no more parentheses than needed."""

from __future__ import annotations

import math

from nnet3tools.tensor.functional.expr import Apply, Cast, Constant, Expr, Placeholder

__all__ = ["INFIX", "to_text"]

INFIX: dict[str, tuple[str, int]] = {
    "or": ("||", 1),
    "and": ("&&", 2),
    "eq": ("==", 4),
    "ne": ("!=", 4),
    "lt": ("<", 4),
    "le": ("<=", 4),
    "gt": (">", 4),
    "ge": (">=", 4),
    "add": ("+", 5),
    "sub": ("-", 5),
    "mul": ("*", 6),
    "div": ("/", 6),
    "pow": ("**", 8),
}
"""Binary operators: symbol and how tightly it binds; unary minus and `!` are 7."""

_PREFIX = {"not": "!", "neg": "-"}
_PREFIX_LEVEL = 7
_ATOM = 9


def _constant_text(value: bool | int | float) -> tuple[str, int]:
    if isinstance(value, bool):
        return ("true" if value else "false"), _ATOM
    if isinstance(value, float) and math.isnan(value):
        return "nan", _ATOM
    negative = math.copysign(1.0, value) < 0 if isinstance(value, float) else value < 0
    return repr(value), 7 if negative else _ATOM


def _paren(part: tuple[str, int], level: int) -> str:
    text, binds = part
    return text if binds >= level else f"({text})"


def _infix_text(name: str, left: tuple[str, int], right: tuple[str, int]) -> tuple[str, int]:
    symbol, level = INFIX[name]
    # comparisons do not chain; ** takes a tighter left side; the others group to the left
    left_level = level + 1 if level in (4, 8) else level
    right_level = 7 if level == 8 else level + 1
    return f"{_paren(left, left_level)} {symbol} {_paren(right, right_level)}", level


def _node_text(node: Expr, done: dict[Expr, tuple[str, int]]) -> tuple[str, int]:
    if isinstance(node, Placeholder):
        return f"_{node.number}", _ATOM
    if isinstance(node, Constant):
        return _constant_text(node.value)
    parts = [done[a] for a in node.arguments]
    if isinstance(node, Cast):
        return f"{node.to.value}({parts[0][0]})", _ATOM
    assert isinstance(node, Apply)
    name = node.function.name
    if name in INFIX:
        return _infix_text(name, parts[0], parts[1])
    if name in _PREFIX and not isinstance(node.arguments[0], Constant):
        return _PREFIX[name] + _paren(parts[0], _PREFIX_LEVEL), _PREFIX_LEVEL
    return f"{name}({', '.join(text for text, _ in parts)})", _ATOM


def to_text(expr: Expr) -> str:
    """The formula of an expression."""
    done: dict[Expr, tuple[str, int]] = {}
    for node in expr.walk():
        done[node] = _node_text(node, done)
    return done[expr][0]
