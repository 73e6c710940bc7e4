"""Components with integer weights, made by nnet3-quantize (nnet/quantization.py), for test only.

The type `QuantizedX` has the fields of `X`, except that the field of the matrix is a
`QuantizedParams`. So Kaldi's programs stop at its name, and all of X can be restored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from nnet3tools import tensor
from nnet3tools.errors import UserError
from nnet3tools.nnet.components.affine import AffineComponent, NaturalGradientAffineComponent
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    Properties,
)
from nnet3tools.nnet.components.convolution import ConvolutionComponent
from nnet3tools.nnet.components.fixed import FixedAffineComponent
from nnet3tools.nnet.components.linear import LinearComponent
from nnet3tools.nnet.components.quantized_matrix import QuantizedMatrix, QuantizedParams
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.tdnn import TdnnComponent, TdnnIndexes
from nnet3tools.nnet.components.time_height_convolution import TimeHeightConvolutionComponent
from nnet3tools.tensor.operators.integer_affine import (
    PackedWeights,
    integer_affine,
    quantize_rows,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nnet3tools.nnet.config import ConfigLine


def integer_product(
    out_value: Array,
    in_value: Array,
    weights: PackedWeights,
    limits: Array,
    bias: Array | None = None,
    starts: Sequence[int] = (0,),
    stride: int = 1,
    adds: bool = False,
) -> None:
    """Quantize the rows of `in_value` and compute `integer_affine` of them.

    `limits` (2,) or (0,) is that of a QuantizedMatrix; other arguments are the operator's.
    """
    num_rows = in_value.shape[0]
    with (
        tensor.scratch((num_rows, weights.row_width), in_value, weights.row_type) as rows,
        tensor.scratch((num_rows, 2), like=in_value) as ranges,
    ):
        quantize_rows(rows, ranges, in_value, limits if limits.size else None)
        integer_affine(out_value, rows, ranges, weights, bias, starts, stride, adds)


class Quantized(Component):
    """Base class of components with integer weights."""

    IMPLIED = Properties(0)
    is_quantized = True
    FLOAT: ClassVar[type[Component]]
    """The class of the component with float weights."""
    WEIGHTS: ClassVar[str] = "linear_params"
    """The name of the field with the matrix."""

    @property
    def weights(self) -> QuantizedMatrix:
        """The matrix of integers."""
        matrix: QuantizedMatrix = getattr(self, self.WEIGHTS)
        return matrix

    @property
    def indexes_type(self) -> str:
        return f"{self.FLOAT.type_name}PrecomputedIndexes"

    def init_from_config(self, line: ConfigLine) -> None:
        """Raise ConfigError: integer weights are made from trained ones."""
        raise line.error(f"{self.type_name} cannot be configured, nnet3-quantize makes it")

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Number of operations, as many as with floats."""
        outputs, columns = self.weights.shape
        return rows * (2 * columns + 1) * self.output_dim if outputs else 0

    def backprop(self, args: BackpropArgs) -> None:
        """Raise UserError: rounding has no useful derivative."""
        raise _for_test_only()

    def scale(self, scale: float) -> None:
        """Raise UserError: training, averages and combinations of models need float weights."""
        raise _for_test_only()

    def add(self, alpha: float, other: Component) -> None:
        """Raise UserError, as `scale`."""
        raise _for_test_only()


def _for_test_only() -> UserError:
    return UserError(
        "a quantized network cannot be trained, scaled or added: convert it with "
        "nnet3-copy --dequantize=true"
    )


@register
class QuantizedAffineComponent(Quantized, AffineComponent):
    """An affine component with integer weights."""

    FLOAT: ClassVar[type[Component]] = AffineComponent
    linear_params = QuantizedParams()

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        matrix = self.weights
        integer_product(out_value, in_value, matrix.packed(), matrix.limits, self.bias_params)


@register
class QuantizedNaturalGradientAffineComponent(Quantized, NaturalGradientAffineComponent):
    """An affine component with integer weights, which was trained with natural gradient."""

    FLOAT = NaturalGradientAffineComponent
    linear_params = QuantizedParams()
    propagate = QuantizedAffineComponent.propagate


@register
class QuantizedFixedAffineComponent(Quantized, FixedAffineComponent):
    """A constant affine component with integer weights."""

    FLOAT = FixedAffineComponent
    linear_params = QuantizedParams()
    propagate = QuantizedAffineComponent.propagate


@register
class QuantizedLinearComponent(Quantized, LinearComponent):
    """A linear component with integer weights."""

    FLOAT = LinearComponent
    WEIGHTS = "params"
    params = QuantizedParams()

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        matrix = self.weights
        integer_product(out_value, in_value, matrix.packed(), matrix.limits, adds=True)


@register
class QuantizedTdnnComponent(Quantized, TdnnComponent):
    """A TDNN component with integer weights; each input row is quantized once for all offsets."""

    FLOAT = TdnnComponent
    linear_params = QuantizedParams()

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        assert isinstance(indexes, TdnnIndexes)
        matrix, bias = self.weights, self.bias_params if self.has_bias else None
        weights = matrix.packed(parts=len(self.time_offsets))
        starts, stride = indexes.row_offsets.tolist(), indexes.row_stride
        integer_product(
            out_value, in_value, weights, matrix.limits, bias, starts, stride, bias is None
        )


@register
class QuantizedConvolutionComponent(Quantized, ConvolutionComponent):
    """A convolution component with integer weights; patches are quantized."""

    FLOAT = ConvolutionComponent
    WEIGHTS = "filter_params"
    filter_params = QuantizedParams()

    def filter_patches(self, filtered: Array, patches: Array) -> None:
        """Set `filtered` to the products of patches with all filters."""
        integer_product(filtered, patches, self.weights.packed(), self.weights.limits)


@register
class QuantizedTimeHeightConvolutionComponent(Quantized, TimeHeightConvolutionComponent):
    """A convolution over time and height with integer weights; patches are quantized."""

    FLOAT = TimeHeightConvolutionComponent
    linear_params = QuantizedParams()

    def add_product(self, out: Array, patches: Array, columns: slice) -> None:
        """Add to `out` the products of patches with some columns of the parameters."""
        weights = self.weights.packed(columns.start, columns.stop)
        integer_product(out, patches, weights, self.weights.limits, adds=True)
