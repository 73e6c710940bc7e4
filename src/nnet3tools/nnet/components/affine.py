"""y = W x + b, by plain gradient descent or with natural gradient.

Formulas and file fields: Kaldi's AffineComponent and NaturalGradientAffineComponent
(nnet-simple-component.cc).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

import numpy as np

from nnet3tools import tensor
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Indexes,
    Memo,
    Properties,
    UpdatableComponent,
)
from nnet3tools.nnet.components.common import (
    expect_either,
    get_positive,
    matrix_from_file,
    optional_field,
    random_normal,
    read_field,
    require,
    write_field,
)
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.summary import parameter_stats
from nnet3tools.nnet.components.two_sided import TwoSidedNaturalGradient, two_sided_flops
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = [
    "AffineComponent",
    "NaturalGradientAffineComponent",
    "affine_propagate",
    "split_affine",
]

_set_rows = tensor.element("_1 = _2")
_sum_rows = tensor.aggregate("_1", "sum", axis=0)


def split_affine(matrix: Array) -> tuple[Array, Array]:
    """(W, b) from the matrix [W b] that Kaldi's matrix= files hold; at least two columns."""
    return np.ascontiguousarray(matrix[:, :-1]), np.ascontiguousarray(matrix[:, -1])


def affine_propagate(in_value: Array, out_value: Array, linear: Array, bias: Array) -> None:
    """Set out to in W^T + b."""
    _set_rows(out_value, bias)
    tensor.prod(out_value, in_value, linear, trans_b=True, beta=1.0)


@register
class AffineComponent(UpdatableComponent):
    """y = W x + b; `linear_params` (output_dim, input_dim), `bias_params` (output_dim,)."""

    def __init__(
        self, linear_params: Array | None = None, bias_params: Array | None = None
    ) -> None:
        self.linear_params = tensor.zeros((0, 0)) if linear_params is None else linear_params
        self.bias_params = tensor.zeros((0,)) if bias_params is None else bias_params
        self.orthonormal_constraint = 0.0

    @property
    def input_dim(self) -> int:
        return int(self.linear_params.shape[1])

    @property
    def output_dim(self) -> int:
        return int(self.linear_params.shape[0])

    @property
    def properties(self) -> Properties:
        return (
            Properties.SIMPLE
            | Properties.UPDATABLE
            | Properties.BACKPROP_NEEDS_INPUT
            | Properties.BACKPROP_ADDS
        )

    @property
    def input_matrix(self) -> Array:
        return self.linear_params

    def parameters(self) -> dict[str, Array]:
        return {"linear_params": self.linear_params, "bias_params": self.bias_params}

    # -- creation and files

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        component = cls()
        component.read_updatable_config(line)
        component._init_parameters(line)
        component.orthonormal_constraint = line.get_float("orthonormal-constraint", 0.0)
        return component

    def _init_parameters(self, line: ConfigLine, allow_bias_mean: bool = False) -> None:
        """From matrix=, whose last column is the bias, or random of input-dim and output-dim."""
        if "matrix" in line:
            rxfilename = line.get_string("matrix")
            matrix = matrix_from_file(rxfilename)
            if matrix.shape[1] < 2:
                raise line.error(f"matrix '{rxfilename}' must have at least 2 columns")
            self.linear_params, self.bias_params = split_affine(matrix)
            for key, dim in (("input-dim", self.input_dim), ("output-dim", self.output_dim)):
                if line.get_int(key, dim) != dim:
                    raise line.error(f"{key} differs from that of matrix '{rxfilename}' ({dim})")
            return
        input_dim, output_dim = get_positive(line, "input-dim"), get_positive(line, "output-dim")
        param_stddev = line.get_float("param-stddev", 1.0 / math.sqrt(input_dim))
        bias_stddev = line.get_float("bias-stddev", 1.0)
        bias_mean = line.get_float("bias-mean", 0.0) if allow_bias_mean else 0.0
        if param_stddev < 0.0 or (allow_bias_mean and bias_stddev < 0.0):
            raise line.error("param-stddev and bias-stddev must not be negative")
        self.linear_params = random_normal((output_dim, input_dim), param_stddev)
        self.bias_params = random_normal((output_dim,), bias_stddev, bias_mean)

    def _read_parameters(self, reader: Reader) -> None:
        self.read_updatable_common(reader)
        self.linear_params = read_field(reader, "<LinearParams>", reader.read_matrix)
        self.bias_params = read_field(reader, "<BiasParams>", reader.read_vector)
        rows, dim = self.linear_params.shape[0], self.bias_params.shape[0]
        require(reader, rows == dim, f"{rows} rows of <LinearParams> but {dim} <BiasParams>")

    def _write_parameters(self, writer: Writer) -> None:
        self.write_updatable_common(writer)
        write_field(writer, "<LinearParams>", self.linear_params)
        write_field(writer, "<BiasParams>", self.bias_params)

    def _write_orthonormal_constraint(self, writer: Writer) -> None:
        if self.orthonormal_constraint != 0.0:
            write_field(writer, "<OrthonormalConstraint>", float(self.orthonormal_constraint))

    @classmethod
    def read(cls, reader: Reader) -> Self:
        component = cls()
        component._read_parameters(reader)
        component.is_gradient = optional_field(
            reader, "<IsGradient>", reader.read_bool, component.is_gradient
        )
        component.orthonormal_constraint = optional_field(
            reader, "<OrthonormalConstraint>", reader.read_float, 0.0
        )
        reader.expect_token("</AffineComponent>")
        return component

    def write(self, writer: Writer) -> None:
        self._write_parameters(writer)
        self._write_orthonormal_constraint(writer)
        writer.write_token(f"</{self.type_name}>")

    def info(self) -> str:
        text = super().info()
        if self.orthonormal_constraint != 0.0:
            text += f", orthonormal-constraint={self.orthonormal_constraint:g}"
        text += parameter_stats("linear-params", self.linear_params, include_norms=True)
        return text + parameter_stats("bias", self.bias_params, include_mean=True)

    # -- running

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        affine_propagate(in_value, out_value, self.linear_params, self.bias_params)

    def backprop(self, args: BackpropArgs) -> None:
        if args.in_deriv is not None:
            tensor.prod(args.in_deriv, args.out_deriv, self.linear_params, beta=1.0)
        if args.to_update is not None:  # after in_deriv, for it may be this very component
            assert isinstance(args.to_update, AffineComponent)
            if args.to_update.is_gradient:
                args.to_update._update_simple(args.in_value, args.out_deriv)
            else:
                args.to_update._update(args.in_value, args.out_deriv)

    def _update_simple(self, in_value: Array, out_deriv: Array) -> None:
        """W += lr dF/dy^T x, b += lr sum of dF/dy."""
        rate = self.learning_rate
        _sum_rows(self.bias_params, out_deriv, alpha=rate, beta=1.0)
        tensor.prod(self.linear_params, out_deriv, in_value, trans_a=True, alpha=rate, beta=1.0)

    def _update(self, in_value: Array, out_deriv: Array) -> None:
        self._update_simple(in_value, out_deriv)


@register
class NaturalGradientAffineComponent(AffineComponent, TwoSidedNaturalGradient):
    """An affine component whose update is preconditioned on the input and the output side."""

    def __init__(
        self, linear_params: Array | None = None, bias_params: Array | None = None
    ) -> None:
        super().__init__(linear_params, bias_params)
        self.preconditioner_in = OnlineNaturalGradient(rank=20, update_period=4)
        self.preconditioner_out = OnlineNaturalGradient(rank=80, update_period=4)

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        component = cls()
        component.read_updatable_config(line)
        component._init_parameters(line, allow_bias_mean=True)
        component.orthonormal_constraint = line.get_float("orthonormal-constraint", 0.0)
        component.preconditioners_from_config(line, component.input_dim, component.output_dim)
        return component

    @classmethod
    def read(cls, reader: Reader) -> Self:
        component = cls()
        component._read_parameters(reader)
        rank_in = read_field(reader, "<RankIn>", reader.read_int32)
        rank_out = read_field(reader, "<RankOut>", reader.read_int32)
        component.orthonormal_constraint = optional_field(
            reader, "<OrthonormalConstraint>", reader.read_float, 0.0
        )
        period = read_field(reader, "<UpdatePeriod>", reader.read_int32)
        history = read_field(reader, "<NumSamplesHistory>", reader.read_float)
        alpha = read_field(reader, "<Alpha>", reader.read_float)
        component.set_preconditioners(reader, rank_in, rank_out, period, history, alpha)
        component._read_old_fields(reader)
        expect_either(reader, f"</{cls.type_name}>", f"<{cls.type_name}>")
        return component

    def _read_old_fields(self, reader: Reader) -> None:
        """Fields that old models have and that mean nothing now."""
        optional_field(reader, "<MaxChangePerSample>", reader.read_float, 0.0)
        self.is_gradient = optional_field(
            reader, "<IsGradient>", reader.read_bool, self.is_gradient
        )
        for token in ("<UpdateCount>", "<ActiveScalingCount>", "<MaxChangeScaleStats>"):
            optional_field(reader, token, reader.read_double, 0.0)

    def write(self, writer: Writer) -> None:
        self._write_parameters(writer)
        write_field(writer, "<RankIn>", self.preconditioner_in.rank)
        write_field(writer, "<RankOut>", self.preconditioner_out.rank)
        self._write_orthonormal_constraint(writer)
        for token in ("<UpdatePeriod>", "<NumSamplesHistory>", "<Alpha>"):
            self.write_field_of_preconditioner(writer, token)
        writer.write_token(f"</{self.type_name}>")

    def natural_gradient_flops(self, rows: int) -> int:
        return two_sided_flops(self, self.linear_params, rows)

    def info(self) -> str:
        return super().info() + self.natural_gradient_info()

    def _update(self, in_value: Array, out_deriv: Array) -> None:
        """The bias is preconditioned as one more input that is always 1."""
        rows, dim = in_value.shape
        with (
            tensor.scratch((rows, dim + 1), like=in_value) as extended,
            tensor.scratch(out_deriv.shape, like=out_deriv) as deriv,
        ):
            inputs, ones = extended[:, :dim], extended[:, dim:]
            tensor.copy(inputs, in_value)
            tensor.fill(ones, 1.0)
            tensor.copy(deriv, out_deriv)
            rate = self.precondition(extended, deriv)
            bias = self.bias_params.reshape(-1, 1)
            tensor.prod(bias, deriv, ones, trans_a=True, alpha=rate, beta=1.0)
            tensor.prod(self.linear_params, deriv, inputs, trans_a=True, alpha=rate, beta=1.0)
