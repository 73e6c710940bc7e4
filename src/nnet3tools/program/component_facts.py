"""Facts about components, computed once for each component, not for each command.

(A component's `properties` are put together from flags at each call: 5 microseconds, and programs
of recurrent networks run the same few components hundreds of times.)
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools.nnet.components.base import Component, Properties
from nnet3tools.nnet.nnet import Nnet

_P = {p.name: int(p) for p in Properties}


class ComponentFacts(NamedTuple):
    """The type and dimensions of one component, and its properties (Kaldi's flags) as booleans."""

    indexes_type: str
    input_dim: int
    output_dim: int
    simple: bool
    updatable: bool
    propagate_in_place: bool
    propagate_adds: bool
    backprop_adds: bool
    backprop_needs_input: bool
    backprop_needs_output: bool
    backprop_in_place: bool
    stores_stats: bool
    uses_memo: bool
    input_contiguous: bool
    output_contiguous: bool


_FLAGS = tuple(_P[name.upper()] for name in ComponentFacts._fields[3:])
_COLUMN = {name: column for column, name in enumerate(ComponentFacts._fields[3:])}


def component_facts(component: Component) -> ComponentFacts:
    """The present properties and dimensions of a component."""
    flags = int(component.properties)
    return ComponentFacts(
        component.indexes_type,
        component.input_dim,
        component.output_dim,
        *(bool(flags & flag) for flag in _FLAGS),
    )


class ComponentTable:
    """The facts of a network's components, each computed at its first use and then kept."""

    def __init__(self, nnet: Nnet) -> None:
        self._nnet = nnet
        self._facts: dict[int, ComponentFacts] = {}
        self._known = np.zeros(0, np.bool_)
        """(components,) whether `_flags` has each."""
        self._flags = np.zeros((0, len(_FLAGS)), np.bool_)

    def __getitem__(self, index: int) -> ComponentFacts:
        if (facts := self._facts.get(index)) is None:
            facts = self._facts[index] = component_facts(self._nnet.component(index))
        return facts

    @cached_property
    def node_dims(self) -> NDArray[np.int64]:
        """(nodes,) the dimension of each node of the network."""
        return np.array([self._nnet.dim(node) for node in range(self._nnet.num_nodes)], np.int64)

    def column(self, fact: str, indexes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(N,) the flag `fact`, such as "updatable", of the components `indexes`."""
        if len(self._known) == 0:
            size = len(self._nnet.component_names)
            self._known = np.zeros(size, np.bool_)
            self._flags = np.zeros((size, len(_FLAGS)), np.bool_)
        if np.count_nonzero(self._known[indexes]) < len(indexes):
            for index in set(indexes.tolist()):
                self._flags[index] = self[index][3:]
                self._known[index] = True
        return self._flags[indexes, _COLUMN[fact]]
