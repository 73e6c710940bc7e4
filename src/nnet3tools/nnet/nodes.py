"""The nodes of a network.

As in Kaldi, a component-node of a config is two nodes: the descriptor of its input, named
`<name>_input`, and then the component.
"""

from __future__ import annotations

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.nnet.descriptor import Descriptor


@dataclass(frozen=True)
class InputNode:
    """A node that is an input matrix of the network."""

    dim: int


@dataclass(frozen=True)
class DescriptorNode:
    """Base class of nodes that combine outputs of other nodes."""

    descriptor: Descriptor


@dataclass(frozen=True)
class ComponentInputNode(DescriptorNode):
    """The node with a component's input; the component's own node follows it."""


@dataclass(frozen=True)
class OutputNode(DescriptorNode):
    """A node that is an output matrix; `objective` is linear, quadratic or expression (formula)."""

    objective: str = "linear"
    """linear, quadratic or expression."""
    expression: str = ""
    """Formula over `output` and `target`, if objective=expression."""

    @property
    def criterion(self) -> str:
        """The objective for training: its name, or `expression=<formula>`."""
        return f"expression={self.expression}" if self.expression else self.objective


@dataclass(frozen=True)
class ComponentNode:
    """A node that applies a component to the preceding node; nodes may share a component."""

    component_index: int


@dataclass(frozen=True)
class DimRangeNode:
    """A node with columns [dim_offset, dim_offset + dim) of an input or component node."""

    source: int
    dim_offset: int
    dim: int


Node = InputNode | DescriptorNode | ComponentNode | DimRangeNode
