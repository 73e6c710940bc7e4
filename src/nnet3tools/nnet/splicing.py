"""Affine components that read one node at several times, made TDNN components.

A descriptor such as Append(Offset(x, -1), x, Offset(x, 1)) costs a copy of each row of x per
offset. A TDNN component reads the rows of x where they are.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from nnet3tools.nnet.collapse import only_source
from nnet3tools.nnet.components.affine import AffineComponent, LinearComponent
from nnet3tools.nnet.components.tdnn import TdnnComponent
from nnet3tools.nnet.descriptor import Descriptor, Leaf
from nnet3tools.nnet.forwarding import Offset
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.nodes import ComponentInputNode

_NO_BIAS = np.empty(0, np.float32)


def splice_in_components(nnet: Nnet, names: Iterable[str]) -> list[str]:
    """Make TDNN components of those named components that splice; returns their names.

    A component splices if it is affine or linear, belongs to one node, and the node's descriptor
    appends one node at several times.
    """
    wanted, changed = set(names), []
    nodes = [n for n in range(nnet.num_nodes) if nnet.is_component(n)]
    users = [nnet.components.index(nnet.component_of_node(n)) for n in nodes]
    for n, c in zip(nodes, users, strict=True):
        component, descriptor = nnet.components[c], nnet.descriptor(n - 1)
        source, times = only_source(descriptor), _times(descriptor)
        if (
            nnet.component_names[c] not in wanted
            or users.count(c) > 1
            or source < 0
            or len(times) < 2
        ):
            continue
        if not isinstance(component, AffineComponent | LinearComponent):
            continue
        bias = component.bias_params if isinstance(component, AffineComponent) else _NO_BIAS
        nnet.components[c] = tdnn = TdnnComponent(
            time_offsets=np.array(times, np.int32),
            linear_params=component.input_matrix,
            bias_params=bias,
        )
        tdnn.copy_options(component)
        name = nnet.node_names[source]
        nnet.nodes[n - 1] = ComponentInputNode(Descriptor.parse(name, {name: source}))
        changed.append(nnet.component_names[c])
    return changed


def _times(descriptor: Descriptor) -> list[int]:
    """The different times at which a descriptor appends a node; [] for other descriptors."""
    offsets = [part.source for part in descriptor.parts if isinstance(part, Leaf)]
    times = [offset.t if isinstance(offset, Offset) else 0 for offset in offsets]
    is_shifted = any(isinstance(offset, Offset) and offset.x for offset in offsets)
    return [] if is_shifted or len(times) != len(set(times)) else times
