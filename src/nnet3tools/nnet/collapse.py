"""Merging of adjacent components to make computation cheaper (Kaldi's CollapseModel).

If component 1 is the only input of component 2 (perhaps at several time offsets) and one component
can express both, the merged one replaces component 2 and reads the input of component 1. Possible
pairs: dropout or batch norm before an affine-like component, affine before affine (unless the first
reduces the dimension), affine before a fixed scale.
"""

from __future__ import annotations

from nnet3tools import tensor
from nnet3tools.errors import DataError, ProgramError
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.io import log
from nnet3tools.nnet.arithmetic import set_test_modes
from nnet3tools.nnet.components.affine import AffineComponent, LinearComponent
from nnet3tools.nnet.components.base import Array, Component, DropoutBase
from nnet3tools.nnet.components.batchnorm import BatchNormComponent
from nnet3tools.nnet.components.fixed import FixedAffineComponent, FixedScaleComponent
from nnet3tools.nnet.components.tdnn import TdnnComponent
from nnet3tools.nnet.descriptor import Descriptor, Leaf
from nnet3tools.nnet.forwarding import NodeTerm, Offset
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.nodes import ComponentInputNode, ComponentNode
from nnet3tools.nnet.topology import remove_orphan_components, remove_orphan_nodes

MAX_ROUNDS = 10

_multiply = tensor.element("_1 = _1 * _2")


@dataclass(frozen=True)
class CollapseOptions:
    """Which kinds of neighbouring components `collapse_model` merges; Kaldi's defaults."""

    collapse_dropout: bool = False
    collapse_batchnorm: bool = False
    collapse_affine: bool = True
    collapse_scale: bool = True


def prepare_for_test(nnet: Nnet) -> None:
    """Set the test modes of batch norm and dropout, and collapse components where possible."""
    set_test_modes(nnet)
    collapse_model(nnet)


def collapse_model(nnet: Nnet, options: CollapseOptions | None = None) -> None:
    """Merge pairs of successive components where possible, then remove unused nodes and components.

    Batch norm must be in test mode to be collapsed.
    """
    options = CollapseOptions() if options is None else options
    num_before = len(nnet.components)
    for _ in range(MAX_ROUNDS):
        if not any([_collapse_into_node(nnet, n, options) for n in range(nnet.num_nodes)]):
            break
    else:
        raise ProgramError("collapsing the model does not come to an end")
    num_added = len(nnet.components) - num_before
    remove_orphan_nodes(nnet)
    remove_orphan_components(nnet)
    num_removed = num_before + num_added - len(nnet.components)
    if num_added or num_removed:
        log.log(f"Added {num_added} components, removed {num_removed}")


def _collapse_into_node(nnet: Nnet, n: int, options: CollapseOptions) -> bool:
    """Merge component node n with the component node before it; returns whether it did."""
    node = nnet.nodes[n]
    if not isinstance(node, ComponentNode):
        return False
    descriptor = nnet.descriptor(n - 1)
    source = only_source(descriptor)
    source_node = nnet.nodes[source] if source >= 0 else None
    if not isinstance(source_node, ComponentNode):
        return False
    combined = _combine(nnet, source_node.component_index, node.component_index, options)
    if combined < 0:
        return False
    bypassed = _replace_node(nnet, descriptor, source, nnet.descriptor(source - 1))
    nnet.nodes[n - 1] = ComponentInputNode(bypassed)
    nnet.nodes[n] = replace(node, component_index=combined)
    return True


def only_source(descriptor: Descriptor) -> int:
    """Number of the only node that a descriptor reads, at one or several times; else -1.

    A Scale() of the node also gives -1. (Kaldi ignores the Scale and then scales a bias wrongly.)
    """
    sources = set()
    for part in descriptor.parts:
        if not isinstance(part, Leaf):
            return -1
        term = part.source.source if isinstance(part.source, Offset) else part.source
        if not isinstance(term, NodeTerm) or term.factor != 1.0:
            return -1
        sources.add(term.node)
    return sources.pop() if len(sources) == 1 else -1


def _replace_node(nnet: Nnet, descriptor: Descriptor, node: int, by: Descriptor) -> Descriptor:
    """The descriptor with the descriptor `by` in place of the node of number `node`.

    The substitution is made in text, because the parser brings the result into normal form.
    """
    names = list(nnet.node_names)
    names[node] = by.text(nnet.node_names)
    numbers = {name: i for i, name in enumerate(nnet.node_names)}
    return Descriptor.parse(descriptor.text(names), numbers)


def _combine(nnet: Nnet, first: int, second: int, options: CollapseOptions) -> int:
    """Number of a component, perhaps added, that replaces number `first`, then `second`; or -1."""
    a, b = nnet.components[first], nnet.components[second]
    if a.is_quantized or b.is_quantized:
        return -1
    name_a, name_b = nnet.component_names[first], nnet.component_names[second]
    combined: Component | None = None
    name = f"{name_a}.{name_b}"
    scale = a.average_scale if isinstance(a, DropoutBase) else None
    if options.collapse_dropout and scale is not None:
        if scale == 1.0:
            return second
        name = f"{name_b}.scale{scale:.3g}"
        combined = _scaled(b, scale)
    if combined is None and options.collapse_batchnorm and isinstance(a, BatchNormComponent):
        name = f"{name_a}.{name_b}"
        combined = _after_batchnorm(a, b)
    if combined is None and options.collapse_affine:
        combined = _affine_of_affine(a, b)
    if combined is None and options.collapse_scale:
        combined = _scale_of_affine(a, b)
    if combined is None:
        return -1
    if (existing := nnet.component_index(name)) >= 0:
        return existing
    nnet.components.append(combined)
    nnet.component_names.append(name)
    return len(nnet.components) - 1


# -- pairs


def _scaled(component: Component, scale: float) -> Component | None:
    """A copy of a component that first multiplies its input by `scale`; None if impossible."""
    if component.input_matrix is None:
        return None
    result = component.copy()
    tensor.scale(result.input_matrix, scale)
    return result


def _after_batchnorm(batchnorm: BatchNormComponent, component: Component) -> Component | None:
    """A component equal to test-mode `batchnorm`, then `component`; None if that is not affine."""
    if batchnorm.test_scale is None or batchnorm.test_offset is None:
        raise DataError("batch norm must be in test mode to be collapsed")
    result: AffineComponent | TdnnComponent
    if isinstance(component, AffineComponent):
        result = component.copy()
    elif isinstance(component, LinearComponent):
        bias = tensor.zeros((component.output_dim,), like=component.params)
        result = AffineComponent(linear_params=component.params.copy(), bias_params=bias)
        result.learning_rate = component.learning_rate
    elif isinstance(component, TdnnComponent):
        result = component.copy()
        if result.bias_params.size == 0:
            result.bias_params = tensor.zeros((result.output_dim,), like=result.linear_params)
    else:
        return None
    linear = result.linear_params
    _add_product(result.bias_params, linear, _tiled(batchnorm.test_offset, linear.shape[1]))
    _multiply(linear, _tiled(batchnorm.test_scale, linear.shape[1]))
    return result


def _affine_of_affine(first: Component, second: Component) -> Component | None:
    """An affine component that computes affine `first`, then affine `second`.

    If `second` reads several copies of the output of `first`, side by side (as Append makes them),
    `first` is applied to each of as many blocks of the input. None for components of other kinds,
    and if `first` reduces the dimension.
    """
    if not isinstance(second, AffineComponent):
        return None
    if not isinstance(first, AffineComponent | FixedAffineComponent):
        return None
    if first.input_dim > first.output_dim:
        return None  # the merged matrix would have more parameters than both
    copies = second.input_dim // first.output_dim
    width_in, width_out = first.input_dim, first.output_dim
    linear = tensor.empty((second.output_dim, copies * width_in), like=second.linear_params)
    bias = second.bias_params.copy()
    for i in range(copies):
        block = second.linear_params[:, i * width_out : (i + 1) * width_out]
        into = linear[:, i * width_in : (i + 1) * width_in]
        tensor.prod(into, block, first.linear_params)
        _add_product(bias, block, first.bias_params)
    return AffineComponent(linear_params=linear, bias_params=bias)


def _scale_of_affine(first: Component, second: Component) -> Component | None:
    """Affine `first`, then fixed scale `second`, as one affine component; None for other kinds."""
    if not isinstance(first, AffineComponent) or not isinstance(second, FixedScaleComponent):
        return None
    if first.output_dim != second.input_dim:
        return None
    result = first.copy()
    _multiply(result.bias_params, second.vector)
    _multiply(result.linear_params, second.vector.reshape(-1, 1))
    return result


def _tiled(vector: Array, size: int) -> Array:
    """The vector repeated up to `size`, a multiple of its length."""
    result = tensor.empty((size,), like=vector)
    tensor.copy(result.reshape(-1, vector.shape[0]), vector.reshape(1, -1))
    return result


def _add_product(bias: Array, linear: Array, vector: Array) -> None:
    """Add the product linear @ vector to `bias`, in place."""
    tensor.prod(bias.reshape(-1, 1), linear, vector.reshape(-1, 1), beta=1.0)
