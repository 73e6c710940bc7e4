"""Conversion of networks to integer weights and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from nnet3tools import tensor
from nnet3tools.errors import UserError, naming
from nnet3tools.nnet.components.base import Array, Component, Indexes
from nnet3tools.nnet.components.quantized import Quantized
from nnet3tools.nnet.components.quantized_matrix import QuantizedMatrix
from nnet3tools.nnet.config import name_matches_pattern
from nnet3tools.nnet.nnet import Nnet

C = TypeVar("C", bound=Component)

_CLASSES: dict[type[Component], type[Quantized]] = {c.FLOAT: c for c in Quantized.__subclasses__()}

_column_least, _column_most = tensor.aggregate("_1", "min", 0), tensor.aggregate("_1", "max", 0)
_lower, _raise = tensor.element("_1 = min(_1, _2)"), tensor.element("_1 = max(_1, _2)")


def check_float(nnet: Nnet) -> None:
    """Raise UserError if the network has quantized components."""
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        if component.is_quantized:
            raise UserError(f"the network is quantized (component '{name}')")


def components_to_quantize(nnet: Nnet, float_patterns: Sequence[str], inputs: bool) -> list[str]:
    """Names of components that can have integer weights and match none of `float_patterns`.

    Without `inputs`, components that read an input node are omitted: the columns of features and
    i-vectors differ in size, so that one step for a row would lose the small ones.
    """
    after_inputs = set() if inputs else _readers_of_inputs(nnet)
    return [
        name
        for i, (name, component) in enumerate(
            zip(nnet.component_names, nnet.components, strict=True)
        )
        if type(component) in _CLASSES and i not in after_inputs
        if not any(name_matches_pattern(name, pattern) for pattern in float_patterns)
    ]


def _readers_of_inputs(nnet: Nnet) -> set[int]:
    """Numbers of components that read an input node directly."""
    nodes = [n for n in range(nnet.num_nodes) if nnet.is_component(n)]
    reading = [n for n in nodes if any(map(nnet.is_input, nnet.node_inputs(n - 1)))]
    return {nnet.components.index(nnet.component_of_node(n)) for n in reading}


def quantize(
    nnet: Nnet, names: Sequence[str], bits: int, limits: Mapping[str, NDArray[np.float32]]
) -> None:
    """Give the named components integer weights of 8 or 16 bits, in place.

    `limits` maps names to limits of the inputs, see QuantizedMatrix; absent: those of each row.
    """
    for name in names:
        i = nnet.component_index(name)
        component = nnet.components[i]
        cls = _CLASSES[type(component)]
        with naming(f"component '{name}'"):
            matrix = QuantizedMatrix.of(
                getattr(component, cls.WEIGHTS), bits, limits.get(name, np.empty(0, np.float32))
            )
        nnet.components[i] = _with_weights(component, cls, cls.WEIGHTS, matrix)


def dequantize(nnet: Nnet) -> list[str]:
    """Give quantized components float weights, in place; returns the names of the components."""
    changed = []
    for i, component in enumerate(nnet.components):
        if isinstance(component, Quantized):
            dense = component.weights.dense()
            nnet.components[i] = _with_weights(component, component.FLOAT, component.WEIGHTS, dense)
            changed.append(nnet.component_names[i])
    return changed


def _with_weights(component: Component, cls: type[C], field: str, matrix: object) -> C:
    """A component of class `cls` with the attributes of `component`, but the given matrix."""
    made = cls()
    vars(made).update(vars(component))
    setattr(made, field, matrix)
    return made


class RangeObserver:
    """Finds the ranges of components' inputs while a network runs.

    It replaces the `infer` methods of the components. They use tensor operators, which are recorded
    and replayed like the rest of a program.
    """

    def __init__(self, nnet: Nnet, names: Sequence[str]) -> None:
        self._lows: dict[str, Array] = {}
        self._highs: dict[str, Array] = {}
        for name in names:
            component = nnet.component(nnet.component_index(name))
            columns = component.input_dim
            self._lows[name] = np.zeros(columns, np.float32)
            self._highs[name] = np.zeros(columns, np.float32)
            vars(component)["infer"] = self._observing(name, component.infer)

    def _observing(
        self, name: str, infer: Callable[[Indexes, Array, Array], None]
    ) -> Callable[[Indexes, Array, Array], None]:
        low, high = self._lows[name], self._highs[name]

        def observe(indexes: Indexes, in_value: Array, out_value: Array) -> None:
            with tensor.scratch(low.shape, like=low) as found:
                _column_least(found, in_value)
                _lower(low, found)
                _column_most(found, in_value)
                _raise(high, found)
            infer(indexes, in_value, out_value)

        return observe

    def limits(self) -> dict[str, NDArray[np.float32]]:
        """Name -> least and largest number of the inputs, (2,); they include 0."""
        return {
            name: np.array([low.min(), self._highs[name].max()], np.float32)
            for name, low in self._lows.items()
        }


def relative_error(nnet: Nnet, original: Nnet, name: str) -> float:
    """The Euclidean norm of a component's rounding error, relative to that of its weights."""
    i = nnet.component_index(name)
    component = nnet.components[i]
    assert isinstance(component, Quantized)
    exact = getattr(original.components[i], component.WEIGHTS)
    error = np.linalg.norm(component.weights.dense() - exact)
    return float(error) / max(float(np.linalg.norm(exact)), math.ulp(0.0))
