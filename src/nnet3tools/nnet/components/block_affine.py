"""Affine maps of blocks of the input: the same map for every block, or one for each.

Formulas and file fields: Kaldi's RepeatedAffineComponent, NaturalGradientRepeatedAffineComponent
and BlockAffineComponent (nnet-simple-component.cc).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Self

from nnet3tools import tensor
from nnet3tools.nnet.components.affine import affine_propagate
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Indexes,
    Memo,
    Properties,
    UpdatableComponent,
)
from nnet3tools.nnet.components.common import (
    as_blocks,
    get_positive,
    optional_field,
    random_normal,
    read_field,
    require,
    write_field,
)
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.summary import parameter_stats
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = [
    "BlockAffineComponent",
    "NaturalGradientRepeatedAffineComponent",
    "RepeatedAffineComponent",
]

_sum_rows = tensor.aggregate("_1", "sum", axis=0)


class _BlockwiseAffine(UpdatableComponent):
    """`linear_params` and `bias_params` for `num_blocks` blocks; what the two kinds share."""

    blocks_key: ClassVar[str]
    """Config key of the number of blocks."""
    blocks_token: ClassVar[str]
    """File token of the number of blocks."""
    default_bias_stddev: ClassVar[float]
    blocks_share_params: ClassVar[bool]

    def __init__(self, linear_params: Array, bias_params: Array, num_blocks: int) -> None:
        self.set_parameters(linear_params, bias_params, num_blocks)

    def set_parameters(self, linear_params: Array, bias_params: Array, num_blocks: int) -> None:
        """Take these parameters and whatever follows from their sizes."""
        self.linear_params, self.bias_params = linear_params, bias_params
        self.num_blocks = num_blocks

    @property
    def input_dim(self) -> int:
        return int(self.linear_params.shape[1]) * self.num_blocks

    @property
    def output_dim(self) -> int:
        return self.block_output_dim * self.num_blocks

    @property
    def block_output_dim(self) -> int:
        """Output columns of one block."""
        rows = int(self.linear_params.shape[0])
        return rows if self.blocks_share_params else rows // self.num_blocks

    def parameters(self) -> dict[str, Array]:
        return {"linear_params": self.linear_params, "bias_params": self.bias_params}

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        num_blocks = get_positive(line, cls.blocks_key)
        input_dim, output_dim = get_positive(line, "input-dim"), get_positive(line, "output-dim")
        for key, dim in (("input-dim", input_dim), ("output-dim", output_dim)):
            if dim % num_blocks != 0:
                raise line.error(f"{cls.blocks_key}={num_blocks} must divide {key}={dim}")
        param_stddev = line.get_float("param-stddev", 1.0 / math.sqrt(input_dim // num_blocks))
        bias_mean = line.get_float("bias-mean", 0.0)
        bias_stddev = line.get_float("bias-stddev", cls.default_bias_stddev)
        if param_stddev < 0.0 or bias_stddev < 0.0:
            raise line.error("param-stddev and bias-stddev must not be negative")
        rows = output_dim // num_blocks if cls.blocks_share_params else output_dim
        component = cls(
            random_normal((rows, input_dim // num_blocks), param_stddev),
            random_normal((rows,), bias_stddev, bias_mean),
            num_blocks,
        )
        component.read_updatable_config(line)
        return component

    @classmethod
    def read(cls, reader: Reader) -> Self:
        component = cls(tensor.zeros((0, 0)), tensor.zeros((0,)), 1)
        component.read_updatable_common(reader)
        num_blocks = read_field(reader, cls.blocks_token, reader.read_int32)
        linear = read_field(reader, "<LinearParams>", reader.read_matrix)
        bias = read_field(reader, "<BiasParams>", reader.read_vector)
        rows = linear.shape[0]
        fits = num_blocks > 0 and rows == len(bias)
        fits = fits and (cls.blocks_share_params or rows % num_blocks == 0)
        require(reader, fits, "the number of blocks and the sizes of the parameters do not fit")
        component.set_parameters(linear, bias, num_blocks)
        component.is_gradient = optional_field(
            reader, "<IsGradient>", reader.read_bool, component.is_gradient
        )
        reader.expect_token(f"</{cls.type_name}>")
        return component

    def write(self, writer: Writer) -> None:
        self.write_updatable_common(writer)
        write_field(writer, self.blocks_token, self.num_blocks)
        write_field(writer, "<LinearParams>", self.linear_params)
        write_field(writer, "<BiasParams>", self.bias_params)
        writer.write_token(f"</{self.type_name}>")

    def info(self) -> str:
        return (
            f"{super().info()}, {self.blocks_key}={self.num_blocks}"
            f"{parameter_stats('linear-params', self.linear_params)}"
            f"{parameter_stats('bias', self.bias_params, include_mean=True)}"
        )


@register
class RepeatedAffineComponent(_BlockwiseAffine):
    """One affine map applied to every block: `linear_params` (block out, block in)."""

    blocks_key = "num-repeats"
    blocks_token = "<NumRepeats>"
    default_bias_stddev = 0.0
    blocks_share_params = True

    @property
    def properties(self) -> Properties:
        return (
            Properties.SIMPLE
            | Properties.UPDATABLE
            | Properties.BACKPROP_NEEDS_INPUT
            | Properties.BACKPROP_ADDS
            | Properties.INPUT_CONTIGUOUS
            | Properties.OUTPUT_CONTIGUOUS
        )

    def _in_blocks(self, matrix: Array) -> Array:
        """Input or input derivative with one row a block."""
        return as_blocks(matrix, int(self.linear_params.shape[1]))

    def _out_blocks(self, matrix: Array) -> Array:
        """Output or output derivative with one row a block."""
        return as_blocks(matrix, self.block_output_dim)

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """The one block is applied to each part of the input."""
        return rows * (2 * self.linear_params.shape[1] + 1) * self.output_dim

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        affine_propagate(
            self._in_blocks(in_value),
            self._out_blocks(out_value),
            self.linear_params,
            self.bias_params,
        )

    def backprop(self, args: BackpropArgs) -> None:
        derivs = self._out_blocks(args.out_deriv)
        if args.in_deriv is not None:
            tensor.prod(self._in_blocks(args.in_deriv), derivs, self.linear_params, beta=1.0)
        if args.to_update is not None:
            assert isinstance(args.to_update, RepeatedAffineComponent)
            assert args.in_value is not None
            args.to_update._update(self._in_blocks(args.in_value), derivs)

    def _update(self, inputs: Array, derivs: Array) -> None:
        rate = self.learning_rate
        tensor.prod(self.linear_params, derivs, inputs, trans_a=True, alpha=rate, beta=1.0)
        _sum_rows(self.bias_params, derivs, alpha=rate, beta=1.0)


@register
class NaturalGradientRepeatedAffineComponent(RepeatedAffineComponent):
    """RepeatedAffineComponent whose gradient, summed over the minibatch, is preconditioned."""

    def set_parameters(self, linear_params: Array, bias_params: Array, num_blocks: int) -> None:
        super().set_parameters(linear_params, bias_params, num_blocks)
        rank = max(1, min(40, int(linear_params.shape[1]) // 2))
        self.preconditioner = OnlineNaturalGradient(rank=rank, update_period=4)

    def _update(self, inputs: Array, derivs: Array) -> None:
        rows, cols = self.linear_params.shape
        with tensor.scratch((rows, cols + 1), like=self.linear_params) as gradient:
            linear, bias = gradient[:, :cols], gradient[:, cols]
            tensor.prod(linear, derivs, inputs, trans_a=True)
            _sum_rows(bias, derivs)
            rate = self.learning_rate
            if not self.is_gradient:
                rate *= self.preconditioner.precondition(gradient)
            tensor.add(self.linear_params, linear, alpha=rate)
            tensor.add(self.bias_params, bias, alpha=rate)


@register
class BlockAffineComponent(_BlockwiseAffine):
    """One affine map for each block: `linear_params` (output_dim, block in), block after block."""

    blocks_key = "num-blocks"
    blocks_token = "<NumBlocks>"
    default_bias_stddev = 1.0
    blocks_share_params = False

    @property
    def properties(self) -> Properties:
        return (
            Properties.SIMPLE
            | Properties.UPDATABLE
            | Properties.BACKPROP_NEEDS_INPUT
            | Properties.BACKPROP_ADDS
        )

    def _block(self, k: int) -> tuple[slice, slice]:
        """(input columns, output columns) of block k; the latter are rows of linear_params."""
        width, height = int(self.linear_params.shape[1]), self.block_output_dim
        return slice(k * width, (k + 1) * width), slice(k * height, (k + 1) * height)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        for k in range(self.num_blocks):
            ins, outs = self._block(k)
            linear, bias = self.linear_params[outs], self.bias_params[outs]
            affine_propagate(in_value[:, ins], out_value[:, outs], linear, bias)

    def backprop(self, args: BackpropArgs) -> None:
        assert args.to_update is None or isinstance(args.to_update, BlockAffineComponent)
        for k in range(self.num_blocks):
            ins, outs = self._block(k)
            derivs = args.out_deriv[:, outs]
            if args.in_deriv is not None:
                tensor.prod(args.in_deriv[:, ins], derivs, self.linear_params[outs], beta=1.0)
            if args.to_update is not None:
                assert args.in_value is not None
                linear, rate = args.to_update.linear_params[outs], args.to_update.learning_rate
                tensor.prod(
                    linear, derivs, args.in_value[:, ins], trans_a=True, alpha=rate, beta=1.0
                )
        if args.to_update is not None:
            _sum_rows(
                args.to_update.bias_params,
                args.out_deriv,
                alpha=args.to_update.learning_rate,
                beta=1.0,
            )
