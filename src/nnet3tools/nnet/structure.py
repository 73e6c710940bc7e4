"""A digest of what programs are compiled for in a network: all but parameters and statistics.

A program kept from an earlier run (a cache file) fits a network exactly if the digests agree.
"""

from __future__ import annotations

from nnet3tools.nnet.components.base import Component, Properties
from nnet3tools.nnet.nnet import Nnet

__all__ = ["structure_digest"]


def structure_digest(nnet: Nnet) -> str:
    """64 hexadecimal digits: equal for networks that every request compiles alike for."""
    lines = nnet.config_lines()
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        lines.append(f"component {name}: {_component_text(component)}")
    import hashlib  # 2 ms, for OpenSSL

    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _component_text(component: Component) -> str:
    """Type, dimensions, properties; of a component that looks at indexes also its settings."""
    properties = component.properties
    text = f"{component.type_name} {component.input_dim} {component.output_dim} {int(properties):x}"
    return text if properties & Properties.SIMPLE else f"{text} {component.structure()}"
