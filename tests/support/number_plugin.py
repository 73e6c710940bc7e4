"""mypy plugin: int() and float() of text is an error; number_text.py is the reader of numbers.

int() takes "1_0", Unicode digits and, slowly or with a ValueError, thousands of digits.
"""

from collections.abc import Callable

from mypy.plugin import FunctionContext, Plugin
from mypy.types import Instance, Type, UnionType, get_proper_type

_TEXTS = ("builtins.str", "builtins.bytes")
READERS = {
    "nnet3tools.number_text",
    "nnet3tools.io.text",  # arrays of words that a pattern of numbers has matched
    # text that has matched a pattern of a few digits
    *("nnet3tools.io.whole_file", "nnet3tools.io.sparse", "nnet3tools.grammars.descriptor"),
    *("nnet3tools.grammars.request", "nnet3tools.training.minibatch_rules"),
    *("nnet3tools.training.selection", "nnet3tools.recipe.schedules"),
    *("nnet3tools.recipe.report.log_file", "nnet3tools.recipe.report.history"),
    "nnet3tools.recipe.report.network",
    # text of our own, or of the system
    *("nnet3tools.tensor.formulas.parse", "nnet3tools.cli.started_processes"),
    "nnet3tools.io.memory",
    *("nnet3tools.recipe.slurm", "nnet3tools.recipe.local", "nnet3tools.recipe.saturation"),
    # options and rows that were checked before
    *("nnet3tools.recipe.egs", "nnet3tools.recipe.egs_dir", "nnet3tools.recipe.chain_egs"),
    "nnet3tools.recipe.own_data.pronunciations",
}
"""Modules in which int() and float() may convert text."""


def _is_text(given: Type) -> bool:
    """Whether a type is, or may be, text that is not in the source itself."""
    given = get_proper_type(given)
    if isinstance(given, UnionType):
        return any(map(_is_text, given.items))
    is_text = isinstance(given, Instance) and given.type.fullname in _TEXTS
    return is_text and given.last_known_value is None


def _refuse_text(context: FunctionContext) -> Type:
    if any(_is_text(given) for given in context.arg_types[0][:1]):
        tree = context.api.tree  # type: ignore[attr-defined]
        if tree.fullname.startswith("nnet3tools.") and tree.fullname not in READERS:
            context.api.fail("number of text: use nnet3tools.number_text", context.context)
    return context.default_return_type


class NumberPlugin(Plugin):
    """Checks the calls of int and float."""

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        return _refuse_text if fullname in ("builtins.int", "builtins.float") else None


def plugin(version: str) -> type[Plugin]:
    return NumberPlugin
