"""Registry of component classes by type name, and reading of components of any type.

Decorators in the family files register classes. The registry lists the files of this folder and
imports one when a type that it defines is requested.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
from typing import TypeVar

from nnet3tools.errors import DataError, UserError, quoted
from nnet3tools.io.stream import Reader
from nnet3tools.nnet.components.base import Component, PrecomputedIndexes

_components: dict[str, type[Component]] = {}
_precomputed: dict[str, type[PrecomputedIndexes]] = {}
_FOLDER = os.path.dirname(__file__)

C = TypeVar("C", bound=type[Component])
P = TypeVar("P", bound=type[PrecomputedIndexes])


def register(cls: C) -> C:
    """Class decorator: register a component under its class name, which is Kaldi's type name."""
    cls.type_name = cls.__name__
    _components[cls.__name__] = cls
    return cls


def register_precomputed(cls: P) -> P:
    """Class decorator: register precomputed indexes under `type_name`."""
    _precomputed[cls.type_name] = cls
    return cls


@functools.cache
def _families() -> dict[str, str]:
    """For each component class name, the module of components/ that defines the class.

    Found by searching the source text, because importing all families takes ten times as long.
    """
    found = {}
    for file in os.listdir(_FOLDER):
        if file.endswith(".py"):
            with open(os.path.join(_FOLDER, file), "rb") as source:
                for name in re.findall(rb"\nclass (\w+)\(", source.read()):
                    found[name.decode()] = f"{__package__}.{file[:-3]}"
    return found


def component_types() -> list[str]:
    """All registered type names, sorted."""
    for module in sorted(set(_families().values())):
        importlib.import_module(module)
    return sorted(_components)


def component_class(type_name: str) -> type[Component]:
    """The component class for a Kaldi type name; UserError, with the nearest name, if unknown."""
    if type_name not in _components and (family := _families().get(type_name)) is not None:
        importlib.import_module(family)
    if (cls := _components.get(type_name)) is not None:
        return cls
    import difflib  # needed for errors only

    near = difflib.get_close_matches(type_name, component_types(), n=1, cutoff=0.5)
    hint = f" (nearest known: {near[0]})" if near else ""
    raise UserError(f"unknown component type '{type_name}'{hint}")


def read_component(reader: Reader) -> Component:
    """Read a component of any type: opening token `<Type>`, fields, closing token."""
    token = reader.read_token()
    if not (token.startswith("<") and token.endswith(">")):
        raise DataError(
            f"{reader.name}: expected a component such as <AffineComponent>, found {quoted(token)}"
        )
    try:
        cls = component_class(token[1:-1])
    except UserError as error:
        raise DataError(f"{reader.name}: {error}") from None
    return cls.read(reader)


def read_precomputed_indexes(reader: Reader) -> PrecomputedIndexes:
    """Read precomputed indexes from the file of a compiled program; their token names the type."""
    token = reader.read_token()
    name = token.strip("<>")
    # Importing only the family of the component saves 0.3 s of reading the first program.
    if (family := _families().get(name.removesuffix("PrecomputedIndexes"))) is not None:
        importlib.import_module(family)
    if (cls := _precomputed.get(name)) is None:
        raise DataError(f"{reader.name}: unknown type of precomputed indexes '{token}'")
    return cls.read(reader)
