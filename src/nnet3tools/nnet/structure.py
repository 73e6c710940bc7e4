"""A digest of the properties of a network that compiled programs depend on.

A program from a cache file fits a network exactly if the digests are equal.
"""

from __future__ import annotations

from nnet3tools.nnet.components.base import Component, Properties
from nnet3tools.nnet.nnet import Nnet


def structure_digest(nnet: Nnet) -> str:
    """Hash (64 hex digits); networks with equal hashes compile to equal programs."""
    lines = nnet.config_lines()
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        lines.append(f"component {name}: {_component_text(component)}")
    import hashlib  # imported late: takes 2 ms

    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _component_text(component: Component) -> str:
    """Type, dimensions and properties of a component; if it is not simple, also its settings."""
    properties = component.properties
    text = f"{component.type_name} {component.input_dim} {component.output_dim} {int(properties):x}"
    return text if properties & Properties.SIMPLE else f"{text} {component.structure()}"
