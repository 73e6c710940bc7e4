"""Type names to component classes, and reading and writing a component of any type.

A family file registers by decorating its classes; `FAMILIES` lists the files, so that a new one is
added in one line here. They are imported in turn until one has the type that is looked for.
"""

from __future__ import annotations

import difflib
import importlib
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

FAMILIES: tuple[str, ...] = (
    # what most networks have
    "affine",
    "nonlinearities",
    "batchnorm",
    "softmax",
    "noop",
    "tdnn",
    "linear",
    "dropout",
    "backprop_truncation",
    "lstm",
    # the others
    "attention",
    "block_affine",
    "clip_gradient",
    "columns",
    "composite",
    "constant",
    "convolution",
    "distribute",
    "dropout_mask",
    "expression",
    "fixed",
    "general_dropout",
    "groups",
    "gru",
    "maxpooling",
    "normalize",
    "output_gru",
    "per_element",
    "scale_offset",
    "statistics_extraction",
    "statistics_pooling",
    "time_height_convolution",
    "time_mask",
)
"""Modules of this package that hold components."""

_components: dict[str, type[Component]] = {}
_precomputed: dict[str, type[PrecomputedIndexes]] = {}
_to_load = list(reversed(FAMILIES))

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


def _load(type_name: str | None = None) -> None:
    """Import families until one has this type, or all."""
    while _to_load and (type_name is None or type_name not in _components):
        importlib.import_module(f"nnet3tools.nnet.components.{_to_load[-1]}")
        _to_load.pop()


def component_types() -> list[str]:
    """All registered type names, sorted."""
    _load()
    return sorted(_components)


def component_class(type_name: str) -> type[Component]:
    """The class of this Kaldi type name; UserError with the nearest known name otherwise."""
    _load(type_name)
    if (cls := _components.get(type_name)) is not None:
        return cls
    near = difflib.get_close_matches(type_name, _components, n=1, cutoff=0.5)
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
    _load()
    token = reader.read_token()
    cls = _precomputed.get(token.strip("<>"))
    if cls is None:
        raise DataError(f"{reader.name}: unknown type of precomputed indexes '{token}'")
    return cls.read(reader)
