"""Descriptors of xconfig lines, read by grammars.descriptor: their config text and dimension."""

from collections.abc import Callable

from nnet3tools.errors import ConfigError
from nnet3tools.grammars.descriptor_syntax import Expression


def descriptor_text(expression: Expression, node_of: Callable[[str], str]) -> str:
    """The text of a descriptor for config files, with `node_of(name)` in place of each name."""
    if not expression.operator:
        return node_of(expression.name)
    arguments = [descriptor_text(child, node_of) for child in expression.children]
    arguments += [expression.name] if expression.name else []
    arguments += map(str, expression.numbers)
    if expression.operator in ("Scale", "Const"):
        arguments.insert(0, str(expression.alpha))
    return f"{expression.operator}({', '.join(arguments)})"


def dimension(expression: Expression, dim_of: Callable[[str], int]) -> int:
    """The number of columns of a descriptor; `dim_of(name)` gives the columns of a layer.

    ConfigError if arguments that need equal dimensions have different ones.
    """
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
