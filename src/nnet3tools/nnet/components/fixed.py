"""Components with constants that training leaves alone: affine, scale, bias.

File fields: Kaldi's FixedAffineComponent, FixedScaleComponent and FixedBiasComponent
(nnet-simple-component.cc).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from nnet3tools import tensor
from nnet3tools.nnet.components.affine import affine_propagate, split_affine
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    Properties,
)
from nnet3tools.nnet.components.common import (
    get_positive,
    matrix_from_file,
    random_normal,
    read_field,
    require,
    vector_from_file,
    write_field,
)
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.summary import parameter_stats

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["FixedAffineComponent", "FixedBiasComponent", "FixedScaleComponent"]

_multiply = tensor.element("_1 = _2 * _3")
_plus = tensor.element("_1 = _2 + _3")


@register
class FixedAffineComponent(Component):
    """y = W x + b with constants; `linear_params` (output_dim, input_dim), `bias_params`."""

    def __init__(self, linear_params: Array, bias_params: Array) -> None:
        self.linear_params, self.bias_params = linear_params, bias_params

    @property
    def input_dim(self) -> int:
        return int(self.linear_params.shape[1])

    @property
    def output_dim(self) -> int:
        return int(self.linear_params.shape[0])

    @property
    def properties(self) -> Properties:
        return Properties.SIMPLE | Properties.BACKPROP_ADDS

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        """From matrix=, whose last column is the bias; or random, which is for tests."""
        if "matrix" in line:
            matrix = matrix_from_file(line.get_string("matrix"))
            if matrix.shape[1] < 2:
                raise line.error("the matrix must have at least 2 columns")
        else:
            input_dim = get_positive(line, "input-dim")
            matrix = random_normal((get_positive(line, "output-dim"), input_dim + 1), 1.0)
        return cls(*split_affine(matrix))

    @classmethod
    def read(cls, reader: Reader) -> Self:
        linear = read_field(reader, "<LinearParams>", reader.read_matrix)
        bias = read_field(reader, "<BiasParams>", reader.read_vector)
        rows, dim = linear.shape[0], bias.shape[0]
        require(reader, rows == dim, f"{rows} rows of <LinearParams> but {dim} <BiasParams>")
        reader.expect_token("</FixedAffineComponent>")
        return cls(linear, bias)

    def write(self, writer: Writer) -> None:
        writer.write_token("<FixedAffineComponent>")
        write_field(writer, "<LinearParams>", self.linear_params)
        write_field(writer, "<BiasParams>", self.bias_params)
        writer.write_token("</FixedAffineComponent>")

    def info(self) -> str:
        text = super().info() + parameter_stats("linear-params", self.linear_params)
        return text + parameter_stats("bias", self.bias_params, include_mean=True)

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """A matrix product and a bias."""
        return rows * (2 * self.input_dim + 1) * self.output_dim

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        affine_propagate(in_value, out_value, self.linear_params, self.bias_params)

    def backprop(self, args: BackpropArgs) -> None:
        if args.in_deriv is not None:
            tensor.prod(args.in_deriv, args.out_deriv, self.linear_params, beta=1.0)


class _FixedVector(Component):
    """A component that is one constant vector, applied to every row."""

    vector: Array
    config_key: str
    """Config key of a file with the vector."""
    token: str
    """Token of the vector in model files."""

    def __init__(self, vector: Array) -> None:
        self.vector = vector

    @property
    def input_dim(self) -> int:
        return int(self.vector.shape[0])

    @property
    def output_dim(self) -> int:
        return self.input_dim

    @property
    def properties(self) -> Properties:
        return Properties.SIMPLE | Properties.PROPAGATE_IN_PLACE | Properties.BACKPROP_IN_PLACE

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        """From a file; or of a given dim, random unless the class has a better way (for tests)."""
        if cls.config_key in line:
            return cls(vector_from_file(line.get_string(cls.config_key)))
        return cls(random_normal((get_positive(line, "dim"),), 1.0))

    @classmethod
    def read(cls, reader: Reader) -> Self:
        vector = read_field(reader, cls.token, reader.read_vector)
        reader.expect_token(f"</{cls.type_name}>")
        return cls(vector)

    def write(self, writer: Writer) -> None:
        writer.write_token(f"<{self.type_name}>")
        write_field(writer, self.token, self.vector)
        writer.write_token(f"</{self.type_name}>")

    def info(self) -> str:
        return super().info() + parameter_stats(self.config_key, self.vector, include_mean=True)


@register
class FixedScaleComponent(_FixedVector):
    """y = scales * x."""

    config_key, token = "scales", "<Scales>"

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        """Also from scale= and dim=: every element the same."""
        if "scale" in line and "scales" not in line:
            dim = get_positive(line, "dim")
            return cls(np.full(dim, line.get_float("scale"), np.float32))
        return super().from_config(line)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        _multiply(out_value, in_value, self.vector)

    def backprop(self, args: BackpropArgs) -> None:
        if args.in_deriv is not None:
            _multiply(args.in_deriv, args.out_deriv, self.vector)


@register
class FixedBiasComponent(_FixedVector):
    """y = x + bias."""

    config_key, token = "bias", "<Bias>"

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        _plus(out_value, in_value, self.vector)

    def backprop(self, args: BackpropArgs) -> None:
        if args.in_deriv is not None:
            tensor.copy(args.in_deriv, args.out_deriv)
