"""Expressions as formula text, with no more parentheses than needed."""

from __future__ import annotations

import math
from collections.abc import Sequence

Text = tuple[str, int]
"""Text of an expression, and how tightly its outermost operator binds."""

INFIX: dict[str, tuple[str, int]] = {
    "or": ("or", 1), "and": ("and", 2), "eq": ("==", 4), "ne": ("!=", 4), "lt": ("<", 4),
    "le": ("<=", 4), "gt": (">", 4), "ge": (">=", 4), "add": ("+", 5), "sub": ("-", 5),
    "mul": ("*", 6), "div": ("/", 6), "pow": ("**", 8),
}  # fmt: skip
"""Binary operators: symbol and how tightly it binds; `not` is 3 and unary minus 7."""

_PREFIX = {"not": ("not ", 3), "neg": ("-", 7)}
ATOM = 9


def constant_text(value: bool | int | float) -> Text:
    """(formula text, how tightly it binds) of a constant; more binds more tightly."""
    if isinstance(value, bool):
        return ("true" if value else "false"), ATOM
    if isinstance(value, float) and math.isnan(value):
        return "nan", ATOM
    negative = math.copysign(1.0, value) < 0 if isinstance(value, float) else value < 0
    return repr(value), 7 if negative else ATOM


def _paren(part: Text, level: int) -> str:
    text, binds = part
    return text if binds >= level else f"({text})"


def _infix_text(name: str, left: Text, right: Text) -> Text:
    symbol, level = INFIX[name]
    # comparisons do not chain; ** takes a tighter left side; the others group to the left
    left_level = level + 1 if level in (4, 8) else level
    right_level = 7 if level == 8 else level + 1
    return f"{_paren(left, left_level)} {symbol} {_paren(right, right_level)}", level


def call_text(name: str, arguments: Sequence[Text], of_number: bool) -> Text:
    """(formula text, how tightly it binds) of a function call; more binds more tightly.

    `arguments` are such pairs. `of_number`: the first argument is a plain number.
    """
    if name in INFIX:
        return _infix_text(name, arguments[0], arguments[1])
    if name == "not" or (name == "neg" and not of_number):
        sign, level = _PREFIX[name]
        return sign + _paren(arguments[0], level), level
    return f"{name}({', '.join(text for text, _ in arguments)})", ATOM
