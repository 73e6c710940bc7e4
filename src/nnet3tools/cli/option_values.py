"""Conversion and checking of option values by click."""

import math
from collections.abc import Callable
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


def _bool(text: str) -> bool:
    known = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
    if (value := known.get(text.lower())) is None:
        raise click.BadParameter(f"expected true or false, found '{text}'")
    return value


def _int(text: str) -> int:
    if (number := parse_int(text)) is None:
        kind = "an" if parse_int(text, -(1 << 63), 1 << 63) is None else "a 32-bit"
        raise click.BadParameter(f"expected {kind} integer, found '{text[:80]}'")
    return number


def _float(text: str) -> float:
    if not math.isfinite(number := _any_float(text)):
        raise click.BadParameter(f"expected a number, found '{text[:80]}'")
    return number


def _any_float(text: str) -> float:
    number = parse_double(text)
    if number is None or math.isnan(number):
        raise click.BadParameter(f"expected a number, found '{text[:80]}'")
    return number


_TYPES: dict[str, Callable[[str], Any]] = {
    "bool": _bool,
    "int": _int,
    "float": _float,
    "any float": _any_float,
    "double": _float,
    "string": str,
    "strings": str,
}
