"""Conversion and checking of option values; click is imported for the error messages only."""

import math
from collections.abc import Callable
from typing import Any

from nnet3tools.errors import OptionError
from nnet3tools.number_text import parse_double, parse_int


def values_of(kinds: dict[str, str], words: list[str]) -> dict[str, Any]:
    """Values by name for the options in `words`, which all have the form --name=value.

    `kinds` gives the kind of every option of the program: "bool", "int", "float", "double", "any
    float" (also infinite), "string" or "strings" (a tuple, because it may be repeated). OptionError
    for a value of another kind.
    """
    values: dict[str, Any] = {}
    for word in words:
        name, _, text = word[2:].partition("=")
        try:
            value = _TYPES[kinds[name]](text)
        except ValueError as error:
            from click import BadParameter

            refused = BadParameter(str(error), param_hint=f"'--{name}'")
            raise OptionError(refused.format_message()) from None
        values[name] = (*values.get(name, ()), value) if kinds[name] == "strings" else value
    return values


def _bool(text: str) -> bool:
    known = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
    if (value := known.get(text.lower())) is None:
        raise ValueError(f"expected true or false, found '{text}'")
    return value


def _int(text: str) -> int:
    if (number := parse_int(text)) is None:
        kind = "an" if parse_int(text, -(1 << 63), 1 << 63) is None else "a 32-bit"
        raise ValueError(f"expected {kind} integer, found '{text[:80]}'")
    return number


def _float(text: str) -> float:
    if not math.isfinite(number := _any_float(text)):
        raise ValueError(f"expected a number, found '{text[:80]}'")
    return number


def _any_float(text: str) -> float:
    number = parse_double(text)
    if number is None or math.isnan(number):
        raise ValueError(f"expected a number, found '{text[:80]}'")
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
