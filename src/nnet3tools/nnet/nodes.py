"""The nodes of a network. As in Kaldi, a component-node of a config is two nodes: the descriptor
of its input, named `<name>_input`, and right after it the component itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from nnet3tools.nnet.descriptor import Descriptor

__all__ = [
    "ComponentInputNode",
    "ComponentNode",
    "DescriptorNode",
    "DimRangeNode",
    "InputNode",
    "Node",
    "OutputNode",
]


@dataclass(frozen=True)
class InputNode:
    """A matrix that the user supplies."""

    dim: int


@dataclass(frozen=True)
class DescriptorNode:
    """Glues outputs of other nodes together; either of the two kinds below."""

    descriptor: Descriptor


@dataclass(frozen=True)
class ComponentInputNode(DescriptorNode):
    """The input of the component node that follows."""


@dataclass(frozen=True)
class OutputNode(DescriptorNode):
    """A matrix the user may ask for; `objective` is what its config line says."""

    objective: str = "linear"
    """linear, quadratic or expression."""
    expression: str = ""
    """With objective=expression: the formula of `output` and `target`."""

    @property
    def criterion(self) -> str:
        """The objective that training takes: its name, or `expression=<formula>`."""
        return f"expression={self.expression}" if self.expression else self.objective


@dataclass(frozen=True)
class ComponentNode:
    """A component applied to the node before this one; several nodes may share a component."""

    component_index: int


@dataclass(frozen=True)
class DimRangeNode:
    """Columns [dim_offset, dim_offset + dim) of an input or component node."""

    source: int
    dim_offset: int
    dim: int


Node = InputNode | DescriptorNode | ComponentNode | DimRangeNode
