"""Affine maps of blocks of the input: one map for all blocks, or one for each block.

Formulas and file fields: Kaldi's RepeatedAffineComponent, NaturalGradientRepeatedAffineComponent
and BlockAffineComponent (nnet-simple-component.cc).
"""

from __future__ import annotations

import math
from typing import ClassVar

from nnet3tools import tensor
from nnet3tools.nnet.components.affine import affine_propagate
from nnet3tools.nnet.components.array_fields import Matrix, Preconditioner, Vector
from nnet3tools.nnet.components.base import Array, BackpropArgs, Indexes, Memo, Properties
from nnet3tools.nnet.components.common import (
    as_blocks,
    bias_problem,
    division_problem,
    get_positive,
    random_normal,
)
from nnet3tools.nnet.components.fields import Int
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.updatable import LATE_IS_GRADIENT, UpdatableComponent
from nnet3tools.nnet.config import ConfigLine

_sum_rows = tensor.aggregate("_1", "sum", axis=0)


class _BlockwiseAffine(UpdatableComponent):
    """Base class of affine components whose input and output columns form `num_blocks` blocks.

    `blocks_share_params`: all blocks have one affine map. `default_bias_stddev` is the default of
    bias-stddev in config lines.
    """

    PROPERTIES = Properties.BACKPROP_NEEDS_INPUT | Properties.BACKPROP_ADDS
    INFO = UpdatableComponent.INFO + " num_blocks linear_params bias_params"
    default_bias_stddev: ClassVar[float]
    blocks_share_params: ClassVar[bool]

    num_blocks: Int
    linear_params: Matrix
    bias_params: Vector

    @property
    def input_dim(self) -> int:
        return self.block_input_dim * self.num_blocks

    @property
    def output_dim(self) -> int:
        return self.block_output_dim * self.num_blocks

    @property
    def block_input_dim(self) -> int:
        """Number of input columns of a block."""
        return int(self.linear_params.shape[1])

    @property
    def block_output_dim(self) -> int:
        """Number of output columns of a block."""
        rows = int(self.linear_params.shape[0])
        return rows if self.blocks_share_params else rows // self.num_blocks

    def init_from_config(self, line: ConfigLine) -> None:
        """Draw random parameters for the line's input-dim and output-dim."""
        input_dim, output_dim = get_positive(line, "input-dim"), get_positive(line, "output-dim")
        for key, dim in (("input-dim", input_dim), ("output-dim", output_dim)):
            problem = division_problem("the number of blocks", self.num_blocks, key, dim)
            if problem is not None:
                raise line.error(problem)
        columns = input_dim // self.num_blocks
        param_stddev = line.get_float("param-stddev", 1.0 / math.sqrt(columns))
        bias_mean = line.get_float("bias-mean", 0.0)
        bias_stddev = line.get_float("bias-stddev", self.default_bias_stddev)
        if param_stddev < 0.0 or bias_stddev < 0.0:
            raise line.error("param-stddev and bias-stddev must not be negative")
        rows = output_dim // self.num_blocks if self.blocks_share_params else output_dim
        self.linear_params = random_normal((rows, columns), param_stddev)
        self.bias_params = random_normal((rows,), bias_stddev, bias_mean)

    def problem(self) -> str | None:
        if problem := bias_problem(self.linear_params, self.bias_params):
            return problem
        num_blocks = 1 if self.blocks_share_params else self.num_blocks
        rows = int(self.linear_params.shape[0])
        return division_problem("the number of blocks", num_blocks, "the number of rows", rows)


@register
class RepeatedAffineComponent(_BlockwiseAffine):
    """Applies one affine map to each block; `linear_params` is (block output, block input)."""

    FORMULA = "y[block k] = W x[block k] + b"
    KEYS = (
        "input-dim output-dim param-stddev=1/sqrt(input-dim/num-repeats) bias-mean=0 bias-stddev=0"
    )
    PROPERTIES = _BlockwiseAffine.PROPERTIES | Properties.CONTIGUOUS
    default_bias_stddev = 0.0
    blocks_share_params = True

    num_blocks = Int("<NumRepeats>", "num-repeats", positive=True)
    linear_params = Matrix("<LinearParams>", key="linear-params")
    bias_params = Vector("<BiasParams>", key="bias")
    late_is_gradient = LATE_IS_GRADIENT

    def _in_blocks(self, matrix: Array) -> Array:
        """View of the input, or its derivative, with one row per block of input columns."""
        return as_blocks(matrix, self.block_input_dim)

    def _out_blocks(self, matrix: Array) -> Array:
        """View of the output, or its derivative, with one row per block of output columns."""
        return as_blocks(matrix, self.block_output_dim)

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Number of arithmetic operations for `rows` rows: a product and a bias for each block."""
        return rows * (2 * self.block_input_dim + 1) * self.output_dim

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        affine_propagate(
            self._in_blocks(in_value),
            self._out_blocks(out_value),
            self.linear_params,
            self.bias_params,
        )

    def backprop_input(self, args: BackpropArgs) -> None:
        in_deriv, out_deriv = self._in_blocks(args.in_deriv), self._out_blocks(args.out_deriv)
        tensor.prod(in_deriv, out_deriv, self.linear_params, beta=1.0)

    def update(self, args: BackpropArgs) -> None:
        parts, derivs = [self._in_blocks(args.in_value)], self._out_blocks(args.out_deriv)
        self.add_affine_gradient(self.linear_params, self.bias_params, parts, derivs)


@register
class NaturalGradientRepeatedAffineComponent(RepeatedAffineComponent):
    """Affine map of each block, trained with natural gradient on a minibatch's summed gradient."""

    preconditioner = Preconditioner(freezes=False, update_period=4)

    def derive(self) -> None:
        self.preconditioner.rank = max(1, min(40, self.block_input_dim // 2))

    def update(self, args: BackpropArgs) -> None:
        inputs, derivs = self._in_blocks(args.in_value), self._out_blocks(args.out_deriv)
        rows, cols = self.linear_params.shape
        with tensor.scratch((rows, cols + 1), like=self.linear_params) as gradient:
            linear, bias = gradient[:, :cols], gradient[:, cols]
            tensor.prod(linear, derivs, inputs, trans_a=True)
            _sum_rows(bias, derivs)
            rate = self.rate
            if not self.is_gradient:
                rate *= self.preconditioner.precondition(gradient)
            tensor.add(self.linear_params, linear, alpha=rate)
            tensor.add(self.bias_params, bias, alpha=rate)


@register
class BlockAffineComponent(_BlockwiseAffine):
    """An affine map per block; `linear_params` is (output_dim, block input), block by block."""

    FORMULA = "y[block k] = W_k x[block k] + b_k"
    KEYS = (
        "input-dim output-dim param-stddev=1/sqrt(input-dim/num-blocks) bias-mean=0 bias-stddev=1"
    )

    default_bias_stddev = 1.0
    blocks_share_params = False

    num_blocks = Int("<NumBlocks>", "num-blocks", positive=True)
    linear_params = Matrix("<LinearParams>", key="linear-params")
    bias_params = Vector("<BiasParams>", key="bias")
    late_is_gradient = LATE_IS_GRADIENT

    def _block(self, k: int) -> tuple[slice, slice]:
        """Input and output columns of block k; the output columns are rows of linear_params."""
        width, height = self.block_input_dim, self.block_output_dim
        return slice(k * width, (k + 1) * width), slice(k * height, (k + 1) * height)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        for k in range(self.num_blocks):
            ins, outs = self._block(k)
            linear, bias = self.linear_params[outs], self.bias_params[outs]
            affine_propagate(in_value[:, ins], out_value[:, outs], linear, bias)

    def backprop_input(self, args: BackpropArgs) -> None:
        for k in range(self.num_blocks):
            ins, outs = self._block(k)
            in_deriv, out_deriv = args.in_deriv[:, ins], args.out_deriv[:, outs]
            tensor.prod(in_deriv, out_deriv, self.linear_params[outs], beta=1.0)

    def update(self, args: BackpropArgs) -> None:
        for k in range(self.num_blocks):
            ins, outs = self._block(k)
            linear, bias = self.linear_params[outs], self.bias_params[outs]
            self.add_affine_gradient(linear, bias, [args.in_value[:, ins]], args.out_deriv[:, outs])
