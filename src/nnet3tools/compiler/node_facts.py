"""Facts about nodes that the compiler needs at every step: dimensions, component, parts, scales."""

from __future__ import annotations

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.nnet.components.base import Component
from nnet3tools.nnet.descriptor import SumDescriptor
from nnet3tools.nnet.forwarding import Forwarding
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.nodes import ComponentInputNode, ComponentNode, DescriptorNode
from nnet3tools.program.component_facts import ComponentFacts, ComponentTable
from nnet3tools.program.computation import StrideType


@dataclass(frozen=True, slots=True)
class PartFacts:
    """Facts about one of the parts that a descriptor appends.

    Its terms ("leaves", each a node with an offset) are numbers `first_leaf` to `end_leaf` - 1 in
    the descriptor. `constant` is the constant to which terms are added, None if it differs between
    rows. `nodes_of_scale` has (scale, nodes with it) by increasing scale, mostly 1 only; None if a
    node has several scales, so that terms differ in scale by leaf and row (Kaldi refuses that).
    """

    dim: int
    first_leaf: int
    end_leaf: int
    descriptor: SumDescriptor
    constant: float | None
    nodes_of_scale: tuple[tuple[float, frozenset[int]], ...] | None


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts about one node of a network that the compiler needs.

    `component` and the facts `of_component` are None unless the node is a component; `parts`
    are empty unless it is a descriptor.
    """

    is_output: bool
    dim: int
    stride_type: StrideType
    component: Component | None
    of_component: ComponentFacts | None
    parts: tuple[PartFacts, ...]


class FactsOfNodes(dict[int, NodeFacts]):
    """By node, its NodeFacts (dimension, component, parts), computed when first used."""

    def __init__(self, nnet: Nnet, components: ComponentTable) -> None:
        super().__init__()
        self._nnet, self._components = nnet, components

    def __missing__(self, node: int) -> NodeFacts:
        facts = self[node] = node_facts(self._nnet, node, self._components)
        return facts


def node_facts(nnet: Nnet, node: int, components: ComponentTable) -> NodeFacts:
    """The dimension, component and descriptor parts of node number `node` of a network."""
    is_packed, component, of_component = False, None, None
    parts: tuple[PartFacts, ...] = ()
    match nnet.nodes[node]:
        case ComponentNode(component_index):
            component = nnet.components[component_index]
            of_component = components[component_index]
            is_packed = of_component.output_contiguous
        case DescriptorNode(descriptor) as found:
            parts = _part_facts(nnet, descriptor.parts)
            if isinstance(found, ComponentInputNode):
                is_packed = components[nnet.nodes[node + 1].component_index].input_contiguous  # type: ignore[union-attr]
    stride = StrideType.EQUAL_NUM_COLS if is_packed else StrideType.DEFAULT
    dim = int(components.node_dims[node])
    return NodeFacts(nnet.is_output(node), dim, stride, component, of_component, parts)


def _part_facts(nnet: Nnet, parts: tuple[SumDescriptor, ...]) -> tuple[PartFacts, ...]:
    facts = []
    start = 0
    for part in parts:
        leaves, dim = part.leaves, part.dim(nnet)
        end = start + len(leaves)
        facts.append(PartFacts(dim, start, end, part, part.constant, _nodes_of_scale(leaves)))
        start = end
    return tuple(facts)


def _nodes_of_scale(
    leaves: tuple[Forwarding, ...],
) -> tuple[tuple[float, frozenset[int]], ...] | None:
    nodes_of_scale: dict[float, set[int]] = {}
    scales = {(node, scale) for leaf in leaves for node, scale in leaf.node_scales()}
    for node, scale in scales:
        nodes_of_scale.setdefault(scale, set()).add(node)
    if len({node for node, _ in scales}) < len(scales):
        return None
    return tuple((s, frozenset(nodes_of_scale[s])) for s in sorted(nodes_of_scale))
