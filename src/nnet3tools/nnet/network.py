"""Network: nodes and components by number and by name, and their text form."""

from __future__ import annotations

import math
from typing import Self, TypeVar

from nnet3tools.errors import ProgramError
from nnet3tools.nnet.components.base import Component, Properties
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.nnet.descriptor import Descriptor
from nnet3tools.nnet.nodes import (
    ComponentInputNode,
    ComponentNode,
    DescriptorNode,
    DimRangeNode,
    InputNode,
    Node,
    OutputNode,
)

N = TypeVar("N")


class Network:
    """The nodes and components of a network, with Kaldi's numbers, names and order.

    `nodes[i]` has the name `node_names[i]`, `components[c]` the name `component_names[c]`. Nodes
    are immutable, components are not.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.node_names: list[str] = []
        self.components: list[Component] = []
        self.component_names: list[str] = []

    def copy(self) -> Self:
        """Make an independent copy of the network and of the components in it."""
        other = type(self)()
        other.nodes, other.node_names = list(self.nodes), list(self.node_names)
        other.components = [component.copy() for component in self.components]
        other.component_names = list(self.component_names)
        return other

    # -- look-up

    @property
    def num_nodes(self) -> int:
        """Number of nodes, counting the input node of each component node."""
        return len(self.nodes)

    def node_index(self, name: str) -> int:
        """Number of the node with this name; -1 if there is none."""
        return self.node_names.index(name) if name in self.node_names else -1

    def component_index(self, name: str) -> int:
        """Number of the component with this name; -1 if there is none."""
        return self.component_names.index(name) if name in self.component_names else -1

    def component(self, component_index: int) -> Component:
        """The component with this number."""
        return self.components[component_index]

    def component_of_node(self, node: int) -> Component:
        """The component that belongs to a component node, by the node's number."""
        return self.components[self._node(node, ComponentNode).component_index]

    def descriptor(self, node: int) -> Descriptor:
        """The descriptor of an output node or of a component's input node."""
        return self._node(node, DescriptorNode).descriptor

    def _node(self, node: int, kind: type[N]) -> N:
        found = self.nodes[node]
        if not isinstance(found, kind):
            raise ProgramError(f"node {self.node_names[node]} is not a {kind.__name__}: {found}")
        return found

    def is_input(self, node: int) -> bool:
        """Whether the node is an input-node."""
        return isinstance(self.nodes[node], InputNode)

    def is_output(self, node: int) -> bool:
        """Whether the node is an output-node."""
        return isinstance(self.nodes[node], OutputNode)

    def is_component(self, node: int) -> bool:
        """Whether the node is the component of a component-node."""
        return isinstance(self.nodes[node], ComponentNode)

    def is_component_input(self, node: int) -> bool:
        """Whether the node is the descriptor of a component-node."""
        return isinstance(self.nodes[node], ComponentInputNode)

    def is_dim_range(self, node: int) -> bool:
        """Whether the node is a dim-range-node."""
        return isinstance(self.nodes[node], DimRangeNode)

    def input_nodes(self) -> list[int]:
        """Numbers of the input-nodes."""
        return [n for n in range(self.num_nodes) if self.is_input(n)]

    def output_nodes(self) -> list[int]:
        """Numbers of the output-nodes."""
        return [n for n in range(self.num_nodes) if self.is_output(n)]

    def updatable_components(self) -> list[tuple[str, UpdatableComponent]]:
        """(name, component) of each component with parameters, in order."""
        return [
            (name, c)
            for name, c in zip(self.component_names, self.components, strict=True)
            if isinstance(c, UpdatableComponent) and c.properties & Properties.UPDATABLE
        ]

    def dim(self, node: int) -> int:
        """Number of columns of a node's value."""
        match self.nodes[node]:
            case InputNode(dim) | DimRangeNode(_, _, dim):
                return dim
            case ComponentNode(component_index):
                return self.components[component_index].output_dim
            case DescriptorNode(descriptor):
                return descriptor.dim(self)

    def input_dim(self, name: str) -> int:
        """Dimension of the input node with this name; -1 if there is none."""
        node = self.node_index(name)
        return self.dim(node) if node >= 0 and self.is_input(node) else -1

    def output_dim(self, name: str) -> int:
        """Dimension of the output node with this name; -1 if there is none."""
        node = self.node_index(name)
        return self.dim(node) if node >= 0 and self.is_output(node) else -1

    def node_inputs(self, node: int) -> list[int]:
        """The numbers of the nodes whose values a node reads directly, sorted and distinct."""
        match self.nodes[node]:
            case ComponentNode():
                return [node - 1]
            case DimRangeNode(source):
                return [source]
            case DescriptorNode(descriptor):
                return sorted(set(descriptor.nodes()))
        return []

    def modulus(self) -> int:
        """The period in t with which the network's structure repeats (Kaldi's Nnet::Modulus)."""
        return math.lcm(
            *(node.descriptor.modulus() for node in self.nodes if isinstance(node, DescriptorNode))
        )

    def is_simple(self) -> bool:
        """Whether the network has an "output", and no inputs but "input" and perhaps "ivector"."""
        output, only, ivector = (self.node_index(n) for n in ("output", "input", "ivector"))
        if output < 0 or not self.is_output(output) or only < 0 or not self.is_input(only):
            return False
        return len(self.input_nodes()) == 1 or (ivector >= 0 and self.is_input(ivector))

    # -- text

    def config_line(self, node: int, include_dim: bool = False) -> str:
        """The config line of an input, output, component or dim-range node, as Kaldi prints it.

        With `include_dim`, lines of component and output nodes also have dim=.
        """
        name = self.node_names[node]
        match self.nodes[node]:
            case InputNode(dim):
                return f"input-node name={name} dim={dim}"
            case OutputNode(descriptor, objective, expression):
                dims = f" dim={self.dim(node)}" if include_dim else ""
                text = descriptor.text(self.node_names)
                formula = f' expression="{expression}"' if expression else ""
                return f"output-node name={name} input={text}{dims} objective={objective}{formula}"
            case DimRangeNode(source, dim_offset, dim):
                return (
                    f"dim-range-node name={name} input-node={self.node_names[source]} "
                    f"dim-offset={dim_offset} dim={dim}"
                )
            case ComponentNode(component_index):
                component = self.component_names[component_index]
                text = self.descriptor(node - 1).text(self.node_names)
                dims = f" input-dim={self.dim(node - 1)} output-dim={self.dim(node)}"
                return f"component-node name={name} component={component} input={text}" + (
                    dims if include_dim else ""
                )
        raise ProgramError(f"node {name} has no config line of its own")

    def config_lines(self, include_dim: bool = False) -> list[str]:
        """The config lines of all nodes; with `include_dim`, also with the dimensions of nodes."""
        return [
            self.config_line(node, include_dim)
            for node in range(self.num_nodes)
            if not self.is_component_input(node)
        ]

    def info(self) -> str:
        """The text that nnet3-info prints after the context: size, modulus, nodes, components."""
        num_parameters = sum(c.num_parameters for _, c in self.updatable_components())
        lines = [f"num-parameters: {num_parameters}", f"modulus: {self.modulus()}"]
        lines += self.config_lines(include_dim=True)
        lines += [
            f"component name={name} type={component.info()}"
            for name, component in zip(self.component_names, self.components, strict=True)
        ]
        return "".join(f"{line}\n" for line in lines)
