"""Descriptors of xconfig lines: Kaldi's, and `a@-3`, `-3` and `[-1]` where a name may stand.

`a@-3` is Offset(a, -3); an integer alone is that offset of the previous layer; `[-1]` is the name
of the previous layer, `[-2]` of the one before. Names are those of layers (`lstm1`) and of their
further outputs (`lstm1.c_t`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from nnet3tools.errors import ConfigError
from nnet3tools.nnet.config import parse_float, parse_int
from nnet3tools.nnet.descriptor_parser import parse_expression
from nnet3tools.nnet.descriptor_text import Dialect, Expression

__all__ = ["descriptor_text", "dimension", "parse_descriptor"]

_LEAF = re.compile(
    r"(?:\[(?P<back>-\d+)\](?P<part>\.[\w.-]+)?|(?P<name>[A-Za-z_][\w.-]*)|(?P<plain>[-+]?\d+))"
    r"(?:@(?P<offset>[-+]?\d+))?",
    re.ASCII,
)


def _is_leaf(text: str) -> bool:
    match = _LEAF.fullmatch(text)
    return match is not None and (match["plain"] is None or match["offset"] is None)


def _double(text: str) -> float | None:
    # Not rounded to float32: it is printed again, and the network rounds it.
    return float(text) if parse_float(text) is not None and abs(float(text)) < 1e38 else None


LAYERS = Dialect("a layer name", _is_leaf, _double, flat=False)


def parse_descriptor(text: str, previous: list[str]) -> Expression:
    """The expression with layers' names as leaves; ConfigError if it is not well formed.

    `previous` holds the names of the layers before, the last one last.
    """
    joined = re.sub(r"\s*@\s*", "@", re.sub(r"\[\s*(-?\w+)\s*\]", r"[\1]", text))
    return _resolve(parse_expression(joined, LAYERS), previous)


def _resolve(expression: Expression, previous: list[str]) -> Expression:
    if expression.operator:
        children = tuple(_resolve(child, previous) for child in expression.children)
        return replace(expression, children=children)
    match = _LEAF.fullmatch(expression.name)
    assert match is not None
    if match["name"]:
        name = match["name"]
    else:
        back = int(match["back"] or -1)
        if not 0 < -back <= len(previous):
            shown = "no layer" if not previous else f"only {len(previous)}"
            raise ConfigError(
                f"'{expression.name}' means an earlier layer, but {shown} stands before this line"
            )
        name = previous[back] + (match["part"] or "")
    offset = _offset(match["plain"] or match["offset"] or "0", expression.name)
    leaf = replace(expression, name=name)
    return Expression("Offset", (leaf,), numbers=(offset,)) if offset else leaf


def _offset(text: str, shown: str) -> int:
    if (offset := parse_int(text)) is None:
        raise ConfigError(f"the time offset of '{shown}' is too large")
    return offset


@dataclass(frozen=True)
class _Operator:
    """How an operator is printed: arguments beside its children, before and after them."""

    before: Callable[[Expression], list[str]] = lambda e: []
    after: Callable[[Expression], list[str]] = lambda e: [str(number) for number in e.numbers]


_ALPHA = _Operator(before=lambda e: [str(e.alpha)])
_OPERATORS = {
    "Scale": _ALPHA,
    "Const": _ALPHA,
    "ReplaceIndex": _Operator(after=lambda e: [e.name, *map(str, e.numbers)]),
}


def descriptor_text(expression: Expression, node_of: Callable[[str], str]) -> str:
    """The expression as config text, each name `n` replaced by `node_of(n)`."""
    if not expression.operator:
        return node_of(expression.name)
    operator = _OPERATORS.get(expression.operator, _Operator())
    children = [descriptor_text(child, node_of) for child in expression.children]
    arguments = [*operator.before(expression), *children, *operator.after(expression)]
    return f"{expression.operator}({', '.join(arguments)})"


def dimension(expression: Expression, dim_of: Callable[[str], int]) -> int:
    """Columns of the value; ConfigError if terms that have to agree do not."""
    if not expression.operator:
        return dim_of(expression.name)
    if expression.operator == "Const":
        return expression.numbers[0]
    dims = [dimension(child, dim_of) for child in expression.children]
    if expression.operator == "Append":
        return sum(dims)
    if len(set(dims)) > 1:
        shown = descriptor_text(expression, str)
        raise ConfigError(f"the arguments of {shown} have dimensions {', '.join(map(str, dims))}")
    return dims[0]
