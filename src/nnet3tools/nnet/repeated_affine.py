"""Repeated affine components as block affine ones, whose blocks need not be equal."""

from __future__ import annotations

from nnet3tools import tensor
from nnet3tools.nnet.components.base import Component
from nnet3tools.nnet.components.registry import component_class
from nnet3tools.nnet.nnet import Nnet

__all__ = ["convert_repeated_to_block_affine"]

REPEATED = ("RepeatedAffineComponent", "NaturalGradientRepeatedAffineComponent")


def convert_repeated_to_block_affine(nnet: Nnet) -> None:
    """Replace all repeated affine components, those inside composite ones too."""
    nnet.components = [_converted(component) for component in nnet.components]


def _converted(component: Component) -> Component:
    if component.type_name == "CompositeComponent":
        inner = component.components  # type: ignore[attr-defined]
        inner[:] = [_converted(part) for part in inner]
    return _block_affine(component) if component.type_name in REPEATED else component


def _block_affine(repeated: Component) -> Component:
    """num_repeats copies of the one block, below each other."""
    num_repeats = repeated.num_repeats  # type: ignore[attr-defined]
    block = repeated.linear_params  # type: ignore[attr-defined]
    bias = repeated.bias_params  # type: ignore[attr-defined]
    rows, columns = block.shape
    linear = tensor.empty((num_repeats * rows, columns), like=block)
    tensor.copy(linear.reshape(num_repeats, rows * columns), block.reshape(1, rows * columns))
    biases = tensor.empty((num_repeats * rows,), like=bias)
    tensor.copy(biases.reshape(num_repeats, rows), bias.reshape(1, rows))
    result = component_class("BlockAffineComponent")()
    result.num_blocks = num_repeats  # type: ignore[attr-defined]
    result.linear_params, result.bias_params = linear, biases  # type: ignore[attr-defined]
    return result
