"""Lines of an xconfig file, and options of layers: default, its kind, and the allowed values."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from nnet3tools.errors import ConfigError, TextError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.nnet.config import nearest_hint
from nnet3tools.number_text import INT32_MIN, parse_counts, parse_double, parse_int


@dataclass(frozen=True)
class XconfigLine:
    """A line of an xconfig file: the type of its layer, values by key, and its position."""

    layer_type: str
    values: dict[str, str]
    text: str
    file: str
    number: int

    def error(self, message: str) -> ConfigError:
        """Make a ConfigError about this line."""
        return ConfigError(message, self.file, self.number, self.text)


def read_lines(text: str, file: str) -> list[XconfigLine]:
    """Parse the lines of an xconfig file, skipping comments; ConfigError for a wrong line."""
    from nnet3tools.grammars.lines import read_layer

    lines = []
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            found = read_layer(line)
        except TextError as error:
            raise ConfigError(str(error), file, number) from None
        if found is not None:
            shown = " ".join(line.split("#", 1)[0].split())
            lines.append(XconfigLine(*found, shown, file, number))
    if not lines:
        raise ConfigError("no layers: the xconfig file is empty", file)
    return lines


Value = bool | int | float | str


@dataclass(frozen=True)
class Check:
    """A predicate for allowed option values, and their description in error messages."""

    allows: Callable[[Value], bool]
    expected: str


@dataclass(frozen=True)
class Option:
    """A declared option of a layer; values have the type of `default` and must satisfy `check`."""

    default: Value
    check: Check


def _number(check: Callable[[float], bool]) -> Callable[[Value], bool]:
    return lambda value: not isinstance(value, str) and check(value)


def _to_float(text: str) -> float | None:
    value = parse_double(text)
    return value if value is not None and math.isfinite(value) else None


def _is_rising_list(value: Value) -> bool:
    numbers = parse_counts(str(value).split(","), INT32_MIN)
    return numbers is not None and sorted(set(numbers)) == numbers


ANY = Check(lambda value: True, "anything")
POSITIVE = Check(_number(lambda v: v > 0), "a number above 0")
POSITIVE_OR_UNSET = Check(_number(lambda v: v != 0), "a number above 0, or -1")
NON_NEGATIVE = Check(_number(lambda v: v >= 0), "0 or more")
NON_ZERO = Check(_number(lambda v: v != 0), "a number other than 0")
PROPORTION = Check(_number(lambda v: 0 <= v <= 1), "a number from 0 to 1")
DROPOUT = Check(_number(lambda v: 0 <= v <= 1 or v == -1), "a number from 0 to 1, or -1 for none")
# Options that are copied into a component's line; if they are "", the component's default holds.
# Kaldi checks them only when it reads that line.
NUMBER = Check(lambda v: v == "" or _to_float(str(v)) is not None, "a number")
INTEGER = Check(lambda v: v == "" or parse_int(str(v)) is not None, "an integer")
FLAG = Check(lambda v: str(v)[:1].lower() in ("", "t", "f"), "true or false")
OFFSETS = Check(_is_rising_list, "rising integers such as -1,0,1")


def options(*groups: Mapping[str, Option], **more: Option) -> Mapping[str, Option]:
    """Merge declared options by key: `groups`, and keyword arguments with `-` for `_`."""
    declared = {key.replace("_", "-"): option for key, option in more.items()}
    return MappingProxyType({key: o for group in (*groups, declared) for key, o in group.items()})


def one_of(*choices: str) -> Check:
    """A check that allows only the words `choices`."""
    return Check(lambda value: value in choices, " or ".join(choices))


def read_values(line: XconfigLine, declared: Mapping[str, Option]) -> dict[str, Value]:
    """Values of all declared options, from the line or by default; ConfigError for other keys."""
    values = {key: option.default for key, option in declared.items()}
    for key, text in line.values.items():
        if key == "name":
            continue
        if key not in declared:
            hint = nearest_hint(key, declared)
            known = ", ".join(["name", *sorted(declared)])
            raise line.error(
                f"{line.layer_type} has no option '{key}'{hint}; its options are {known}"
            )
        values[key] = _convert(line, key, text, declared[key].default)
    return values


def _convert(line: XconfigLine, key: str, text: str, default: Value) -> Value:
    value: Value | None
    if isinstance(default, bool):
        value = {"true": True, "True": True, "false": False, "False": False}.get(text)
        expected = "true or false"
    elif isinstance(default, int):
        value, expected = parse_int(text), "an integer"
    elif isinstance(default, float):
        value, expected = _to_float(text), "a number"
    else:
        return text
    if value is None:
        raise line.error(f"option '{key}': expected {expected}, found '{text}'")
    return value


def check_value(line: XconfigLine, key: str, value: Value, check: Check) -> None:
    """Raise ConfigError about the option `key` if `check` does not allow the value."""
    if check.allows(value):
        return
    if key in line.values:
        raise line.error(f"option '{key}': expected {check.expected}, found '{value}'")
    raise line.error(f"option '{key}' is missing: expected {check.expected}")
