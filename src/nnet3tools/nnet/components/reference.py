"""The reference text of component types: purpose, formula, config keys, property flags.

nnet3-info --components prints it, and docs/config.md contains it.
"""

from __future__ import annotations

from typing import Any

from nnet3tools.nnet.components.base import Component, Properties
from nnet3tools.nnet.components.declared import Declared, Part
from nnet3tools.nnet.components.field import REQUIRED, Field
from nnet3tools.nnet.components.quantized import Quantized
from nnet3tools.nnet.components.registry import component_class, component_types


class _KeyNames:
    """Stand-in for a component in functions that compute a default: attribute a_b is "a-b"."""

    def __getattr__(self, name: str) -> str:
        return name.replace("_", "-")


def _key_text(field: Field[Any]) -> str:
    """The word `key` or `key=default` of a field."""
    default = field.default(_KeyNames()) if callable(field.default) else field.default
    no_default = default is REQUIRED or default is None
    return str(field.config) if no_default else f"{field.config}={_default_text(field, default)}"


def _default_text(field: Field[Any], default: Any) -> str:
    return default if isinstance(default, str) else field.text(default)


def config_keys(cls: type[Declared]) -> dict[str, str]:
    """The config keys of a class, in order, each with its text: `key`, `[key]` or `key=default`."""
    found: dict[str, str] = {}
    for field in cls.FIELDS:
        if isinstance(field, Part):
            found.update(config_keys(field.cls))
        elif field.config is not None:
            found[field.config] = _key_text(field)
    for word in cls.KEYS.split():
        if word.startswith("-"):
            del found[word[1:]]
            continue
        found[word.strip("[]").partition("=")[0]] = word
    return found


def component_reference(cls: type[Component]) -> str:
    """The reference text of a component type, in Markdown."""
    purpose = (cls.__doc__ or "").partition("\n")[0]
    keys = {} if issubclass(cls, Quantized) else config_keys(cls)
    for key in keys:
        purpose = purpose.replace(f"`{key.replace('-', '_')}`", f"`{key}`")
    # First the required ones, then `[key]`, then `key=default`.
    words = sorted(keys.values(), key=lambda word: ("=" in word, word.startswith("[")))
    flags = [str(flag.name).lower().replace("_", "-") for flag in Properties if flag in cls.FLAGS]
    if cls.properties is not Component.properties:
        flags.append("others by configuration")
    return (
        f"### {cls.type_name}\n\n{purpose}\n\n- formula: `{cls.FORMULA}`\n"
        f"- keys: {', '.join(f'`{word}`' for word in words) or 'none'}\n"
        f"- properties: {', '.join(flags) or 'none'}\n"
    )


def components_reference(type_name: str) -> str:
    """The reference text of a component type, or of all types if the name is "all"."""
    names = component_types() if type_name == "all" else [type_name]
    return "\n".join(component_reference(component_class(name)) for name in names)
