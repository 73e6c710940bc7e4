"""Conversion of networks to integer or packed weights and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from nnet3tools import tensor
from nnet3tools.errors import naming
from nnet3tools.nnet.collapse import only_source
from nnet3tools.nnet.components.affine import AffineComponent, LinearComponent
from nnet3tools.nnet.components.base import Array, Component, Indexes, Memo
from nnet3tools.nnet.components.composite import CompositeComponent
from nnet3tools.nnet.components.quantized import Quantized
from nnet3tools.nnet.components.quantized_matrix import QuantizedMatrix
from nnet3tools.nnet.components.tdnn import TdnnComponent
from nnet3tools.nnet.config import name_matches_pattern
from nnet3tools.nnet.descriptor import Descriptor, Leaf
from nnet3tools.nnet.forwarding import Offset
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.nodes import ComponentInputNode

C = TypeVar("C", bound=Component)
Propagate = Callable[[Indexes, Array, Array], Memo]

_CLASSES: dict[type[Component], type[Quantized]] = {c.FLOAT: c for c in Quantized.__subclasses__()}

_column_least, _column_most = tensor.aggregate("_1", "min", 0), tensor.aggregate("_1", "max", 0)
_lower, _raise = tensor.element("_1 = min(_1, _2)"), tensor.element("_1 = max(_1, _2)")


def component_places(nnet: Nnet) -> dict[str, tuple[list[Component], int]]:
    """Name of each component -> the list that has it, and its position there.

    The parts of a composite component NAME are NAME.component1 and so on, as in its config line.
    """
    found = {name: (nnet.components, i) for i, name in enumerate(nnet.component_names)}
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        if isinstance(component, CompositeComponent):
            parts = component.components
            found |= {f"{name}.component{k + 1}": (parts, k) for k in range(len(parts))}
    return found


def components_to_quantize(nnet: Nnet, float_patterns: Sequence[str], inputs: bool) -> list[str]:
    """Names of components that can have integer weights and match none of `float_patterns`.

    Without `inputs`, components that read an input node are omitted: features and i-vectors differ
    in size, so a quantization step for the whole row would be too large for the small ones.
    """
    nodes = [n for n in range(nnet.num_nodes) if nnet.is_component(n)]
    readers = [n for n in nodes if any(map(nnet.is_input, nnet.node_inputs(n - 1)))]
    first = [nnet.component_of_node(n) for n in readers]
    first += [c.components[0] for c in first if isinstance(c, CompositeComponent)]
    after_inputs = {id(component) for component in first}
    return [
        name
        for name, (components, i) in component_places(nnet).items()
        if type(components[i]) in _CLASSES and (inputs or id(components[i]) not in after_inputs)
        if not any(name_matches_pattern(name, pattern) for pattern in float_patterns)
    ]


def quantize(
    nnet: Nnet, names: Sequence[str], bits: int, limits: Mapping[str, NDArray[np.float32]]
) -> dict[str, float]:
    """Replace the named components in `nnet` by components with a QuantizedMatrix as weights.

    `bits` 8 or 16: weights are rounded to integers with a scale per row. 32: they stay float32, and
    kernels read a reordered copy ("packed"). `limits` maps names to arrays (2,), the least and the
    largest input for integers; without them, each input row's are found when the network runs.
    Returns, by name, the norm of the rounding errors divided by the norm of the weights.
    """
    errors, places = {}, component_places(nnet)
    for name in names:
        components, i = places[name]
        cls = _CLASSES[type(components[i])]
        exact = getattr(components[i], cls.WEIGHTS)
        with naming(f"component '{name}'"):
            matrix = QuantizedMatrix.of(exact, bits, limits.get(name, np.empty(0, np.float32)))
        components[i] = _with_weights(components[i], cls, cls.WEIGHTS, matrix)
        error, norm = np.linalg.norm(matrix.dense() - exact), np.linalg.norm(exact)
        errors[name] = float(error / norm) if norm else 0.0
    return errors


def dequantize(nnet: Nnet) -> list[str]:
    """Give quantized components float weights, in place; returns the names of the components."""
    changed = []
    for name, (components, i) in component_places(nnet).items():
        if isinstance(component := components[i], Quantized):
            dense = component.weights.dense()
            components[i] = _with_weights(component, component.FLOAT, component.WEIGHTS, dense)
            changed.append(name)
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
    The new `propagate` methods use tensor operators, which are recorded and replayed with programs.
    """
    found, places = {}, component_places(nnet)
    for name in names:
        components, i = places[name]
        low, high = found[name] = np.zeros((2, components[i].input_dim), np.float32)
        vars(components[i])["propagate"] = _observing(low, high, components[i].propagate)
    return found


def _observing(low: Array, high: Array, propagate: Propagate) -> Propagate:
    def observe(indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        with tensor.scratch(low.shape, like=low) as extremes:
            _column_least(extremes, in_value)
            _lower(low, extremes)
            _column_most(extremes, in_value)
            _raise(high, extremes)
        return propagate(indexes, in_value, out_value)

    return observe


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
    """A descriptor's time offsets, one per appended node; [] if two are equal or an x has one."""
    offsets = [part.source for part in descriptor.parts if isinstance(part, Leaf)]
    times = [offset.t if isinstance(offset, Offset) else 0 for offset in offsets]
    is_shifted = any(isinstance(offset, Offset) and offset.x for offset in offsets)
    return [] if is_shifted or len(times) != len(set(times)) else times
