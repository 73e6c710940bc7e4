"""Conversion and checking of option values by click."""

import math
from typing import Any

import click

from nnet3tools.errors import OptionError
from nnet3tools.number_text import parse_double, parse_int


def values_of(program: str, kinds: dict[str, str], words: list[str]) -> dict[str, Any]:
    """Values by name for the options in `words`, which all have the form --name=value.

    `kinds` gives the kind of every option of the program: "bool", "int", "float", "double", "any
    float" (also infinite), "string" or "strings" (a tuple, because it may be repeated). OptionError
    for a value of another kind.
    """
    parameters = [
        click.Option([f"o{number}", f"--{name}"], type=_TYPES[kind], multiple=kind == "strings")
        for number, (name, kind) in enumerate(kinds.items())
    ]
    command = click.Command(program, params=[*parameters], add_help_option=False)
    try:
        context = command.make_context(program, words)
    except click.ClickException as error:
        raise OptionError(error.format_message()) from None
    found = {name: context.params.get(f"o{number}") for number, name in enumerate(kinds)}
    return {name: value for name, value in found.items() if value not in (None, ())}


class _Bool(click.ParamType):
    name = "bool"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        known = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
        if (value_of_word := known.get(str(value).lower())) is None:
            self.fail(f"expected true or false, found '{value}'", param, ctx)
        return value_of_word


class _Int(click.ParamType):
    name = "int"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if (number := parse_int(str(value))) is None:
            kind = "an" if parse_int(str(value), -(1 << 63), 1 << 63) is None else "a 32-bit"
            self.fail(f"expected {kind} integer, found '{str(value)[:80]}'", param, ctx)
        return number


class _Float(click.ParamType):
    name = "float"

    def __init__(self, is_finite: bool = True) -> None:
        self._is_finite = is_finite

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = parse_double(str(value))
        if number is None or math.isnan(number) or (self._is_finite and math.isinf(number)):
            self.fail(f"expected a number, found '{str(value)[:80]}'", param, ctx)
        return number


_TYPES: dict[str, click.ParamType] = {
    "bool": _Bool(),
    "int": _Int(),
    "float": _Float(),
    "any float": _Float(is_finite=False),
    "double": _Float(),
    "string": click.STRING,
    "strings": click.STRING,
}
