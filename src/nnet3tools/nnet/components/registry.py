"""Type names to component classes, and reading and writing a component of any type.

A family file registers by decorating its classes. Files are found by looking through this folder,
and imported when a type that they define is asked for.
"""

from __future__ import annotations

import difflib
import importlib.resources
import pkgutil
from typing import TYPE_CHECKING, TypeVar

from nnet3tools.errors import DataError, UserError
from nnet3tools.nnet.components.base import Component, PrecomputedIndexes

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader

__all__ = [
    "component_class",
    "component_types",
    "read_component",
    "read_precomputed_indexes",
    "register",
    "register_precomputed",
]

_components: dict[str, type[Component]] = {}
_precomputed: dict[str, type[PrecomputedIndexes]] = {}
_FOLDER = importlib.resources.files(__package__)

C = TypeVar("C", bound=type[Component])
P = TypeVar("P", bound=type[PrecomputedIndexes])


def register(cls: C) -> C:
    """Class decorator: make a component known under its class name, which is Kaldi's type name."""
    cls.type_name = cls.__name__
    _components[cls.__name__] = cls
    return cls


def register_precomputed(cls: P) -> P:
    """Class decorator: make precomputed indexes known under `type_name`."""
    _precomputed[cls.type_name] = cls
    return cls


def _load(type_name: str) -> None:
    """Import the family that has a type: the module whose text defines a class of that name.

    The texts are looked at because importing all families takes ten times as long.
    """
    if type_name.isidentifier():
        definition = f"\nclass {type_name}(".encode()
        for file in _FOLDER.iterdir():
            if file.name.endswith(".py") and definition in file.read_bytes():
                importlib.import_module(f"{__package__}.{file.name[:-3]}")


def _load_all() -> None:
    for module in pkgutil.iter_modules(importlib.import_module(__package__).__path__):
        importlib.import_module(f"{__package__}.{module.name}")


def component_types() -> list[str]:
    """All registered type names, sorted."""
    _load_all()
    return sorted(_components)


def component_class(type_name: str) -> type[Component]:
    """The class of this Kaldi type name; UserError with the nearest known name otherwise."""
    if type_name not in _components:
        _load(type_name)
    if (cls := _components.get(type_name)) is not None:
        return cls
    near = difflib.get_close_matches(type_name, component_types(), n=1, cutoff=0.5)
    hint = f" (nearest known: {near[0]})" if near else ""
    raise UserError(f"unknown component type '{type_name}'{hint}")


def read_component(reader: Reader) -> Component:
    """Read one component of any type: opening token `<Type>`, fields, closing token."""
    token = reader.read_token()
    if not (token.startswith("<") and token.endswith(">")):
        raise DataError(
            f"{reader.name}: expected a component such as <AffineComponent>, found '{token}'"
        )
    try:
        cls = component_class(token[1:-1])
    except UserError as error:
        raise DataError(f"{reader.name}: {error}") from None
    return cls.read(reader)


def read_precomputed_indexes(reader: Reader) -> PrecomputedIndexes:
    """Read precomputed indexes of any type from a program file."""
    _load_all()
    token = reader.read_token()
    cls = _precomputed.get(token.strip("<>"))
    if cls is None:
        raise DataError(f"{reader.name}: unknown type of precomputed indexes '{token}'")
    return cls.read(reader)
