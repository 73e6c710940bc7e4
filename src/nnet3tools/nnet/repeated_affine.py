"""Conversion of repeated affine components to block affine ones, whose blocks may differ."""

from __future__ import annotations

from nnet3tools import tensor
from nnet3tools.nnet.components.base import Component
from nnet3tools.nnet.components.block_affine import BlockAffineComponent, RepeatedAffineComponent
from nnet3tools.nnet.components.composite import CompositeComponent
from nnet3tools.nnet.nnet import Nnet


def convert_repeated_to_block_affine(nnet: Nnet) -> None:
    """Replace RepeatedAffineComponents, also in composites, by BlockAffineComponents."""
    nnet.components = [_converted(component) for component in nnet.components]


def _converted(component: Component) -> Component:
    if isinstance(component, CompositeComponent):
        component.components = [_converted(part) for part in component.components]
    return _block_affine(component) if isinstance(component, RepeatedAffineComponent) else component


def _block_affine(repeated: RepeatedAffineComponent) -> BlockAffineComponent:
    """A block affine component with `num_blocks` copies of the repeated block."""
    block, bias, count = repeated.linear_params, repeated.bias_params, repeated.num_blocks
    rows, columns = block.shape
    linear = tensor.empty((count * rows, columns), like=block)
    tensor.copy(linear.reshape(count, rows * columns), block.reshape(1, rows * columns))
    biases = tensor.empty((count * rows,), like=bias)
    tensor.copy(biases.reshape(count, rows), bias.reshape(1, rows))
    result = BlockAffineComponent(linear_params=linear, bias_params=biases, num_blocks=count)
    result.copy_options(repeated)
    return result
