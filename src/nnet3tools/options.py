"""Program options as fields of frozen dataclasses, each with its default and help text.

A field `max_change: float = option(2.0, "help")` is the option `--max-change`. `cli.option_specs`
reads these fields.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any, Self, TypeVar, dataclass_transform

from nnet3tools.errors import OptionError, quoted
from nnet3tools.fast_dataclasses import Field, dataclass, field, fields
from nnet3tools.number_text import parse_counts

T = TypeVar("T")

NO_COMMANDS = "NNET3TOOLS_NO_COMMANDS"
"""The environment variable by which programs refuse file names that are shell commands."""


def commands_are_refused() -> bool:
    """Whether --no-commands, or its environment variable, holds for this process."""
    return os.environ.get(NO_COMMANDS, "0") not in ("", "0")


def option(
    default: T,
    text: str,
    name: str = "",
    infinite: bool = False,
    aliases: tuple[str, ...] = (),
    shown: Any = None,
    bare: str = "",
) -> T:
    """A dataclass field for one option with this default and help text.

    The option's name is the field's name with dashes, unless `name` is given; `aliases` are further
    full names. A field whose type is a tuple of strings is an option that may be repeated. With
    `infinite`, infinity and NaN are accepted as values of a number. `shown` is the default in
    --help if `default` is None, which means that the user has not given the option. `bare` is the
    value of the option without `=value`; by default such an option, if not a flag, is an error.
    """
    metadata: dict[str, Any] = {"help": text, "aliases": aliases, "bare": bare}
    if name:
        metadata["name"] = name
    if infinite:
        metadata["kind"] = "any float"
    if shown is not None:
        metadata["shown"] = shown
    return field(default=default, metadata=metadata)


def option_group(prefix: str, options: type[T]) -> T:
    """A dataclass field for a group of options, a dataclass of its own.

    The group's options are named `prefix.option`, or `option` if the prefix is empty.
    """
    return field(default_factory=options, metadata={"prefix": prefix})


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class OptionGroup:
    """Base class of options of programs: each subclass is a frozen dataclass of `option` fields.

    A subclass becomes a dataclass when it is used, because that takes 0.6 ms and a module may
    declare the options of several programs.
    """

    def __new__(cls, *args: object, **values: object) -> Self:
        option_fields(cls)
        return super().__new__(cls)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))


def option_fields(group: type) -> tuple[Field[Any], ...]:
    """The fields of a dataclass or OptionGroup, which becomes a dataclass if it is none yet."""
    for each in reversed(group.__mro__):
        if issubclass(each, OptionGroup) and "__dataclass_fields__" not in vars(each):
            dataclass(frozen=True, eq=False, repr=False)(each)
    return fields(group)


def colon_list(text: str, what: str) -> list[int]:
    """The numbers in text such as 13:14:15. OptionError for other text.

    `what` names the value in the error message, such as "--skip-dims option".
    """
    if (numbers := parse_counts(word for word in text.split(":") if word)) is None:
        raise OptionError(f"Bad {what} (should be colon-separated list of integers): {text}")
    return numbers


def check_name(option_name: str, value: str, known: Collection[str]) -> None:
    """Raise OptionError unless `value` is in `known`; the message lists all known names."""
    if value in known:
        return
    import difflib  # needed for errors only

    near = difflib.get_close_matches(value, known, n=1, cutoff=0.5)
    hint = f" (did you mean '{near[0]}'?)" if near else ""
    raise OptionError(
        f"{option_name}: expected {', '.join(known)}; found {quoted(value) or 'nothing'}{hint}"
    )


def listed_names(option_name: str, value: str, known: Collection[str]) -> list[str]:
    """The names in `value`, separated by commas; OptionError for a name that is not in `known`."""
    names = [name.strip() for name in value.split(",")]
    for name in names:
        check_name(option_name, name, known)
    return names
