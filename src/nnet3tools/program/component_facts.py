"""Facts about components, looked up once a component instead of once a command.

(A component's `properties` are put together from flags at each call: 5 microseconds, and programs
of recurrent networks run the same few components hundreds of times.)
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools.nnet.components.base import Properties

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet

__all__ = ["ComponentFacts", "ComponentTable"]

_P = {p.name: int(p) for p in Properties}


class ComponentFacts(NamedTuple):
    """Properties and dimensions of one component."""

    type_name: str
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


_FLAGS = tuple(_P[name.upper()] for name in ComponentFacts._fields[3:])


class ComponentTable:
    """The facts of a network's components as they are now."""

    def __init__(self, nnet: Nnet) -> None:
        self._nnet = nnet
        self._facts: dict[int, ComponentFacts] = {}

    def __getitem__(self, index: int) -> ComponentFacts:
        if (facts := self._facts.get(index)) is None:
            component = self._nnet.component(index)
            flags = int(component.properties)
            facts = ComponentFacts(
                component.type_name,
                component.input_dim,
                component.output_dim,
                *(bool(flags & flag) for flag in _FLAGS),
            )
            self._facts[index] = facts
        return facts

    def column(self, fact: str, indexes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """One fact that is true or false of many components, (N,)."""
        facts = map(self.__getitem__, indexes.tolist())
        return np.fromiter(map(attrgetter(fact), facts), np.bool_, len(indexes))
