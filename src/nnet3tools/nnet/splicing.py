"""Affine components that read one node at several times, made TDNN components.

A descriptor such as Append(Offset(x, -1), x, Offset(x, 1)) costs a copy of each row of x per
offset. A TDNN component reads the rows of x where they are.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from nnet3tools.nnet.components.affine import AffineComponent
from nnet3tools.nnet.components.base import Component
from nnet3tools.nnet.components.linear import LinearComponent
from nnet3tools.nnet.components.tdnn import TdnnComponent
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.nnet.descriptor import Descriptor, Leaf
from nnet3tools.nnet.forwarding import NodeTerm, Offset
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.nodes import ComponentInputNode, ComponentNode


def splice_in_components(nnet: Nnet, names: Iterable[str]) -> list[str]:
    """Make TDNN components of those named components that splice; returns their names.

    A component splices if it is affine or linear, belongs to one node, and the node's descriptor
    appends one node at several times.
    """
    wanted, changed = {nnet.component_index(name) for name in names}, []
    nodes = [n for n, node in enumerate(nnet.nodes) if isinstance(node, ComponentNode)]
    users = [nnet.components.index(nnet.component_of_node(n)) for n in nodes]
    for n, c in zip(nodes, users, strict=True):
        if c not in wanted or users.count(c) > 1:
            continue
        found = _spliced_node(nnet.descriptor(n - 1))
        tdnn = None if found is None else _tdnn_of(nnet.components[c], found[1])
        if found is None or tdnn is None:
            continue
        nnet.components[c] = tdnn
        name = nnet.node_names[found[0]]
        nnet.nodes[n - 1] = ComponentInputNode(Descriptor.parse(name, {name: found[0]}))
        changed.append(nnet.component_names[c])
    return changed


def _spliced_node(descriptor: Descriptor) -> tuple[int, list[int]] | None:
    """The node that a descriptor appends at several times, and the times; None for other forms."""
    times, sources = [], set()
    for part in descriptor.parts:
        if not isinstance(part, Leaf):
            return None
        offset = part.source if isinstance(part.source, Offset) else None
        term = part.source if offset is None else offset.source
        if not isinstance(term, NodeTerm) or term.factor != 1.0 or (offset and offset.x):
            return None
        sources.add(term.node)
        times.append(offset.t if offset else 0)
    if len(sources) != 1 or not 1 < len(times) == len(set(times)):
        return None
    return sources.pop(), times


def _tdnn_of(component: Component, times: list[int]) -> TdnnComponent | None:
    """A TDNN component with the parameters of an affine or linear one; None for other types."""
    if isinstance(component, AffineComponent):
        bias = component.bias_params
    elif isinstance(component, LinearComponent):
        bias = np.empty(0, np.float32)
    else:
        return None
    assert isinstance(component, UpdatableComponent)
    made = TdnnComponent(
        time_offsets=np.array(times, np.int32),
        linear_params=component.input_matrix,
        bias_params=bias,
    )
    made.copy_options(component)
    return made
