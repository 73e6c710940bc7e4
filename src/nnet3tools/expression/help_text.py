"""Help texts of operators: their shapes and derivatives, added to docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def described(derivative: str, shapes: str = "as x") -> Callable[[F], F]:
    """Decorator that adds the shapes and the derivative of an operator to its docstring.

    `derivative` is what is added to the gradient of the operand x, or of each operand, where `adj`
    is the gradient by the value. Without `shapes`, the docstring says the shapes.
    """

    def add(function: F) -> F:
        text = inspect.cleandoc(function.__doc__ or "")
        about_shapes = f"Shapes: {shapes}.\n" if shapes else ""
        function.__doc__ = f"{text}\n\n{about_shapes}Derivative: {derivative}."
        return function

    return add
