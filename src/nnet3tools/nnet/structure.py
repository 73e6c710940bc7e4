"""What a compiled program depends on in a network, as a digest: all but parameters and statistics.

A program kept from an earlier run (a cache file) fits a network exactly if the digests agree.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from nnet3tools.nnet.components.base import Component, Properties
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient
from nnet3tools.nnet.nnet import Nnet

__all__ = ["structure_digest"]


def structure_digest(nnet: Nnet) -> str:
    """64 hexadecimal digits: equal for networks that every request compiles alike for."""
    lines = nnet.config_lines()
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        lines.append(f"component {name}: {_component_text(component)}")
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _component_text(component: Component) -> str:
    """Type, dimensions, properties; of a component that looks at indexes also its settings."""
    properties = component.properties
    text = f"{component.type_name} {component.input_dim} {component.output_dim} {int(properties):x}"
    return text if properties & Properties.SIMPLE else f"{text} {_settings(component)}"


def _settings(value: Any) -> Any:
    """The whole numbers, flags and texts in an object, recursively.

    Floats and float arrays are left out: they are parameters, statistics and factors, which change
    as a network is trained and which no index depends on.
    """
    if isinstance(value, bool | int | str | np.integer):
        return str(value)
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype.kind in "biu" else ""
    if isinstance(value, dict):
        return {str(key): _settings(item) for key, item in sorted(value.items())}
    if isinstance(value, set | frozenset):
        value = sorted(value)
    if isinstance(value, tuple | list):
        return [_settings(item) for item in value]
    if isinstance(value, OnlineNaturalGradient):
        return ""
    if type(value).__module__.startswith("nnet3tools.nnet"):
        return _settings(_fields(value))
    return ""


def _fields(value: Any) -> dict[str, Any]:
    names = {*getattr(value, "__dict__", {}), *getattr(type(value), "__slots__", ())}
    return {name: getattr(value, name) for name in names}
