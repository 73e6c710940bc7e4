"""The public functions of elementwise kinds, such as `expression.exp`, with their help texts."""

from __future__ import annotations

import builtins
import inspect
import keyword
import re
from collections.abc import Callable
from typing import Any

from nnet3tools.expression.elementwise import KINDS, apply, derivative_terms
from nnet3tools.expression.help_text import described
from nnet3tools.expression.node import Node
from nnet3tools.tensor.formulas import Function, Rule

_WITHOUT_NAME = {"add", "sub", "mul", "div", "leaky_relu_back", "prelu_back", "relu_back"}
"""Elementwise functions that are Python's infix operators, or only parts of derivatives."""

_DEFINED_ELSEWHERE = {"clip", "prelu", "sqrt", "tanh"}
"""Elementwise functions whose public function has other operands."""


def _public_name(kind: str) -> str:
    """The public name of an elementwise function; it avoids Python's own names."""
    if kind in ("max", "min"):
        return f"{kind}imum"
    return f"{kind}_" if hasattr(builtins, kind) or keyword.iskeyword(kind) else kind


KIND_OF = {_public_name(kind): kind for kind in KINDS.keys() - _WITHOUT_NAME - _DEFINED_ELSEWHERE}
"""Public name -> name of the elementwise function."""


def _operand_names(function: Function) -> tuple[str, ...]:
    """The names of a function's operands, from its definition or derivative; else "a", "b", "c"."""
    for source in (function.definition, function.derivative):
        names = () if source is None else source.__code__.co_varnames[: source.__code__.co_argcount]
        found = tuple(name for name in names if name != "v")
        if len(found) == function.arity:
            return found
    return ("a", "b", "c")[: function.arity]


def _derivative_text(function: Function) -> str:
    """The gradient's terms as text: "adj * b by a; adj * a by b" for a * b with gradient adj."""
    names = _operand_names(function)
    shown = dict(zip("abc", names, strict=False))
    texts = []
    for name, (used, term) in zip(names, derivative_terms(function), strict=True):
        text = term.text()
        for number, holder in enumerate(used, start=1):
            text = re.sub(rf"_{number}\b", shown.get(holder, holder), text)
        texts.append(text if function.arity == 1 else f"{text} by {name}")
    return "; ".join(texts)


def elementwise_operator(name: str) -> Callable[..., Node]:
    """Make the public function called `name`, such as "maximum", with signature and help text."""
    kind = KIND_OF[name]
    function = KINDS[kind]
    shapes = "as the operand" if function.arity == 1 else "the operands broadcast"
    if function.rule in (Rule.COMPARE, Rule.LOGIC):
        shapes += "; the value is bool"

    def operator(*operands: Any) -> Node:
        return apply(kind, *operands)

    operator.__doc__ = f"{function.doc}."
    operator.__name__ = operator.__qualname__ = name
    operator.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(n, inspect.Parameter.POSITIONAL_ONLY, annotation="Operand")
            for n in _operand_names(function)
        ],
        return_annotation="Node",
    )
    return described(_derivative_text(function), shapes)(operator)
