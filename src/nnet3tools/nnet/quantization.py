"""Conversion of networks to integer weights and back."""

from __future__ import annotations

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
    nodes = [n for n in range(nnet.num_nodes) if nnet.is_component(n)]
    readers = [n for n in nodes if any(map(nnet.is_input, nnet.node_inputs(n - 1)))]
    after_inputs = {id(nnet.component_of_node(n)) for n in readers}
    return [
        name
        for name, component in zip(nnet.component_names, nnet.components, strict=True)
        if type(component) in _CLASSES and (inputs or id(component) not in after_inputs)
        if not any(name_matches_pattern(name, pattern) for pattern in float_patterns)
    ]


def quantize(
    nnet: Nnet, names: Sequence[str], bits: int, limits: Mapping[str, NDArray[np.float32]]
) -> dict[str, float]:
    """Give the named components integer weights of 8 or 16 bits, in place.

    `limits` maps names to limits of the inputs, see QuantizedMatrix; absent: those of each row.
    Returns the norm of each matrix's rounding errors, relative to the norm of the matrix.
    """
    errors = {}
    for name in names:
        i = nnet.component_index(name)
        cls = _CLASSES[type(nnet.components[i])]
        exact = getattr(nnet.components[i], cls.WEIGHTS)
        with naming(f"component '{name}'"):
            matrix = QuantizedMatrix.of(exact, bits, limits.get(name, np.empty(0, np.float32)))
        nnet.components[i] = _with_weights(nnet.components[i], cls, cls.WEIGHTS, matrix)
        error, norm = np.linalg.norm(matrix.dense() - exact), np.linalg.norm(exact)
        errors[name] = float(error / norm) if norm else 0.0
    return errors


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
    """A copy of `component` as an object of class `cls`, with `matrix` as its attribute `field`."""
    made = cls()
    vars(made).update(vars(component))
    setattr(made, field, matrix)
    return made


def observe_inputs(nnet: Nnet, names: Sequence[str]) -> dict[str, NDArray[np.float32]]:
    """Make components note the range of their inputs in the returned arrays whenever `nnet` runs.

    Each array (2, columns), by component name, has the least and largest inputs, which begin as 0.
    The new `infer` methods use tensor operators, which are recorded and replayed with a program.
    """
    found = {}
    for name in names:
        component = nnet.component(nnet.component_index(name))
        low, high = found[name] = np.zeros((2, component.input_dim), np.float32)
        vars(component)["infer"] = _observing(low, high, component.infer)
    return found


def _observing(
    low: Array, high: Array, infer: Callable[[Indexes, Array, Array], None]
) -> Callable[[Indexes, Array, Array], None]:
    def observe(indexes: Indexes, in_value: Array, out_value: Array) -> None:
        with tensor.scratch(low.shape, like=low) as extremes:
            _column_least(extremes, in_value)
            _lower(low, extremes)
            _column_most(extremes, in_value)
            _raise(high, extremes)
        infer(indexes, in_value, out_value)

    return observe
