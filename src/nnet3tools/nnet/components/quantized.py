"""Components with integer or packed float weights, which nnet3-quantize makes, for test only.

The type `QuantizedX` has the fields of `X`, except that the field of the matrix is a
`PackedParams`. So Kaldi's programs stop at its name, and all of X can be restored.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

from nnet3tools.errors import UserError
from nnet3tools.nnet.components.affine import (
    AffineComponent,
    LinearComponent,
    NaturalGradientAffineComponent,
)
from nnet3tools.nnet.components.base import Array, Component, Indexes, Memo, Properties
from nnet3tools.nnet.components.convolution import ConvolutionComponent
from nnet3tools.nnet.components.fixed import FixedAffineComponent
from nnet3tools.nnet.components.quantized_matrix import PackedParams, QuantizedMatrix
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.tdnn import TdnnComponent, TdnnIndexes
from nnet3tools.nnet.components.time_height_convolution import TimeHeightConvolutionComponent
from nnet3tools.nnet.config import ConfigLine


class Quantized(Component):
    """Base class of components with integer or packed weights, in the field named WEIGHTS.

    FLOAT is the class of the component with float weights.
    """

    IMPLIED = Properties(0)
    FLOAT: ClassVar[type[Component]]
    WEIGHTS: ClassVar[str] = "linear_params"

    @property
    def is_quantized(self) -> bool:
        return True

    @property
    def weights(self) -> QuantizedMatrix:
        """The matrix of integers or packed floats."""
        return getattr(self, self.WEIGHTS)

    @property
    def indexes_type(self) -> str:
        return f"{self.FLOAT.type_name}PrecomputedIndexes"

    def init_from_config(self, line: ConfigLine) -> None:
        """Raise ConfigError: integer weights are made from trained ones."""
        raise line.error(f"{self.type_name} cannot be configured, nnet3-quantize makes it")

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Number of arithmetic operations for `rows` rows, as many as with float weights."""
        return rows * (2 * self.weights.shape[1] + 1) * self.output_dim

    def _refuse(self: Any, *_: Any) -> Any:
        """Raise UserError: training, averages and combinations of models need float weights."""
        raise UserError(
            "a quantized network cannot be trained, scaled or added: convert it with "
            "nnet3-copy --dequantize=true"
        )

    backprop = scale = add = cast(Any, _refuse)


@register
class QuantizedAffineComponent(Quantized, AffineComponent):
    """An affine component with integer weights."""

    FLOAT: ClassVar[type[Component]] = AffineComponent
    linear_params = PackedParams()

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        self.weights.multiply(out_value, in_value, self.bias_params)


@register
class QuantizedNaturalGradientAffineComponent(Quantized, NaturalGradientAffineComponent):
    """An affine component with integer weights, which was trained with natural gradient."""

    FLOAT = NaturalGradientAffineComponent
    linear_params = PackedParams()
    propagate = QuantizedAffineComponent.propagate


@register
class QuantizedFixedAffineComponent(Quantized, FixedAffineComponent):
    """A constant affine component with integer weights."""

    FLOAT = FixedAffineComponent
    linear_params = PackedParams()
    propagate = QuantizedAffineComponent.propagate


@register
class QuantizedLinearComponent(Quantized, LinearComponent):
    """A linear component with integer weights."""

    FLOAT = LinearComponent
    WEIGHTS = "params"
    params = PackedParams()

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        self.weights.multiply(out_value, in_value, adds=True)


@register
class QuantizedTdnnComponent(Quantized, TdnnComponent):
    """A TDNN component with integer weights; each input row is quantized once for all offsets."""

    FLOAT = TdnnComponent
    linear_params = PackedParams()

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        assert isinstance(indexes, TdnnIndexes)
        bias = self.bias_params if self.has_bias else None
        starts, stride = indexes.row_offsets.tolist(), indexes.row_stride
        self.weights.multiply(out_value, in_value, bias, starts, stride, adds=bias is None)


@register
class QuantizedConvolutionComponent(Quantized, ConvolutionComponent):
    """A convolution component with integer weights; patches are quantized."""

    FLOAT = ConvolutionComponent
    WEIGHTS = "filter_params"
    filter_params = PackedParams()

    def filter_patches(self, filtered: Array, patches: Array) -> None:
        """Set `filtered` (N, filters) to products of N patches (N, patch_dim) with all filters."""
        self.weights.multiply(filtered, patches)


@register
class QuantizedTimeHeightConvolutionComponent(Quantized, TimeHeightConvolutionComponent):
    """A convolution over time and height with integer weights; patches are quantized."""

    FLOAT = TimeHeightConvolutionComponent
    linear_params = PackedParams()

    def add_product(self, out: Array, patches: Array, columns: slice) -> None:
        """Add to `out` (N, filters) the products of N patches with parameter columns `columns`."""
        self.weights.multiply(out, patches, columns=columns, adds=True)
