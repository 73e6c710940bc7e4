"""mypy plugin: int() and float() of text is an error; number_text.py is the reader of numbers.

int() takes "1_0", Unicode digits and, slowly or with a ValueError, thousands of digits.
"""

from collections.abc import Callable

from mypy.plugin import FunctionContext, Plugin
from mypy.types import Instance, Type, UnionType, get_proper_type

READERS = {"nnet3tools.number_text"}
"""Modules that may: what they convert has matched a pattern of ASCII digits."""


def _is_text(given: Type) -> bool:
    given = get_proper_type(given)
    if isinstance(given, UnionType):
        return any(map(_is_text, given.items))
    return isinstance(given, Instance) and given.type.fullname in ("builtins.str", "builtins.bytes")


def _refuse_text(context: FunctionContext) -> Type:
    if any(_is_text(given) for given in context.arg_types[0][:1]):
        tree = getattr(context.api, "tree", None)
        if tree is None or tree.fullname not in READERS:
            context.api.fail("number of text: use nnet3tools.number_text", context.context)
    return context.default_return_type


class NumberPlugin(Plugin):
    """Checks the calls of int and float."""

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        return _refuse_text if fullname in ("builtins.int", "builtins.float") else None


def plugin(version: str) -> type[Plugin]:
    return NumberPlugin
