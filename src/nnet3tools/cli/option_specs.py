"""The command-line options that a frozen dataclass declares (see `nnet3tools.options`).

A field whose type is a dataclass is a group. Its options are named `prefix.option`, where prefix is
the field's name or the metadata "prefix", or just `option` if that is empty.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.options import option_fields

T = TypeVar("T")

_KINDS = {bool: "bool", int: "int", float: "float", str: "string", tuple: "strings"}


@dataclass(frozen=True)
class OptionSpec:
    """A command-line option: full name, path of dataclass fields to its value, and help text.

    `kind` is "bool", "int", "float", "double", "any float" (also infinite), "string" or "strings".
    """

    name: str
    path: tuple[str, ...]
    kind: str
    default: Any
    text: str
    bare: str = ""
    """The value of the option without `=value`; "" if it needs one."""

    def help_line(self) -> str:
        """The option's line in --help, as Kaldi prints it, without a newline."""
        return f"  --{self.name:<25} : {self.text} ({self._kind}, default = {self._default()})"

    @property
    def _kind(self) -> str:
        return self.kind.removeprefix("any ")

    def _default(self) -> str:
        if self.kind == "bool":
            return "true" if self.default else "false"
        if self.kind in ("string", "strings"):
            return f'"{self.default or ""}"'
        return f"{self.default:g}" if self._kind in ("float", "double") else str(self.default)


def specs_of(options: type, prefix: str = "", path: tuple[str, ...] = ()) -> Iterator[OptionSpec]:
    """Yield the options of a dataclass and of its option groups, except "hidden" fields.

    If the dataclass is itself a group, `prefix` begins the names, and `path` are the fields to it.
    """
    for item in option_fields(options):
        if item.metadata.get("hidden") or not item.init:
            continue
        here = (*path, item.name)
        if isinstance(item.default_factory, type):
            inner = item.metadata.get("prefix", item.name.replace("_", "-"))
            yield from specs_of(
                item.default_factory, prefix + inner + "." if inner else prefix, here
            )
            continue
        name = prefix + item.metadata.get("name", item.name.replace("_", "-"))
        default = item.metadata.get("shown", item.default)
        kind = item.metadata.get("kind") or _KINDS[type(default)]
        for known in (name, *item.metadata.get("aliases", ())):
            text, bare = item.metadata.get("help", ""), item.metadata.get("bare", "")
            yield OptionSpec(known, here, kind, default, text, bare)


def build(options: type[T], values: dict[tuple[str, ...], Any], path: tuple[str, ...] = ()) -> T:
    """An instance of the dataclass `options`, with `values` by path of fields, else defaults.

    `path` is the path of `options` itself, () for the outermost dataclass.
    """
    arguments: dict[str, Any] = {}
    for item in option_fields(options):
        here = (*path, item.name)
        if here in values:
            arguments[item.name] = values[here]
        elif any(key[: len(here)] == here for key in values):
            arguments[item.name] = build(item.default_factory, values, here)  # type: ignore[arg-type]
    return options(**arguments)
