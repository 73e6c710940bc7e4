"""The network as a directed graph: orphans, cycles without a delay, removal of nodes."""

from __future__ import annotations

from collections.abc import Iterable

from nnet3tools.fast_dataclasses import replace
from nnet3tools.io import log
from nnet3tools.nnet.components.base import Properties
from nnet3tools.nnet.network import Network
from nnet3tools.nnet.nodes import ComponentNode, DescriptorNode, DimRangeNode, Node


def orphan_components(nnet: Network) -> list[int]:
    """Numbers of the components that no node uses."""
    used = {node.component_index for node in nnet.nodes if isinstance(node, ComponentNode)}
    return [c for c in range(len(nnet.components)) if c not in used]


def orphan_nodes(nnet: Network) -> list[int]:
    """Numbers of the nodes that no output depends on."""
    pending, required = nnet.output_nodes(), set()
    while pending:
        node = pending.pop()
        if node not in required:
            required.add(node)
            pending += nnet.node_inputs(node)
    return [n for n in range(nnet.num_nodes) if n not in required]


def warn_of_orphans(nnet: Network) -> None:
    """Log a warning for each orphan component and node."""
    for c in orphan_components(nnet):
        log.warning(f"Component {nnet.component_names[c]} is never used by any node.")
    for n in orphan_nodes(nnet):
        if not nnet.is_component_input(n):
            log.warning(f"Node {nnet.node_names[n]} is never used to compute any output.")


def _same_index_inputs(nnet: Network, node: int) -> set[int]:
    """The nodes that a node needs at the same Index for every row."""
    match nnet.nodes[node]:
        case DescriptorNode(descriptor):
            return descriptor.required_nodes()
        case DimRangeNode(source):
            return {source}
        case ComponentNode(component_index):
            if nnet.components[component_index].properties & Properties.SIMPLE:
                return {node - 1}
    return set()


def find_cycle_without_delay(nnet: Network) -> list[int]:
    """A cycle of nodes each of which needs the next one at the same Index; [] if there is none.

    A network with such a cycle cannot be computed. (Cycles whose delays sum to zero are only found
    when a computation is compiled.)
    """
    inputs = [_same_index_inputs(nnet, n) for n in range(nnet.num_nodes)]
    finished: set[int] = set()
    for start in range(nnet.num_nodes):
        path: dict[int, None] = {}
        stack = [iter([start])]
        while stack:
            if (node := next(stack[-1], None)) is None:
                stack.pop()
                if path:
                    finished.add(path.popitem()[0])
            elif node in path:
                return list(path)[list(path).index(node) :]
            elif node not in finished:
                path[node] = None
                stack.append(iter(sorted(inputs[node])))
    return []


def remove_nodes(nnet: Network, to_remove: Iterable[int]) -> None:
    """Remove the nodes `to_remove`, to which no other node refers, and renumber the others."""
    removed = set(to_remove)
    kept = [n for n in range(nnet.num_nodes) if n not in removed]
    old_to_new = [-1] * nnet.num_nodes
    for new, old in enumerate(kept):
        old_to_new[old] = new

    def renumber(node: Node) -> Node:
        match node:
            case DescriptorNode(descriptor):
                return replace(node, descriptor=descriptor.renumber(old_to_new))
            case DimRangeNode(source):
                return replace(node, source=old_to_new[source])
        return node

    nnet.nodes = [renumber(nnet.nodes[n]) for n in kept]
    nnet.node_names = [nnet.node_names[n] for n in kept]


def remove_orphan_nodes(nnet: Network, remove_orphan_inputs: bool = False) -> None:
    """Remove nodes that no output depends on; input-nodes only if `remove_orphan_inputs`."""
    orphans = [n for n in orphan_nodes(nnet) if remove_orphan_inputs or not nnet.is_input(n)]
    num_removed = sum(not nnet.is_component_input(n) for n in orphans)
    remove_nodes(nnet, orphans)
    log.log(f"Removed {num_removed} orphan nodes.")


def remove_orphan_components(nnet: Network) -> None:
    """Remove components that no node uses (Nnet::RemoveOrphanComponents)."""
    orphans = set(orphan_components(nnet))
    log.log(f"Removing {len(orphans)} orphan components.")
    kept = [c for c in range(len(nnet.components)) if c not in orphans]
    new_number = {old: new for new, old in enumerate(kept)}
    nnet.components = [nnet.components[c] for c in kept]
    nnet.component_names = [nnet.component_names[c] for c in kept]
    nnet.nodes = [
        replace(node, component_index=new_number[node.component_index])
        if isinstance(node, ComponentNode)
        else node
        for node in nnet.nodes
    ]
