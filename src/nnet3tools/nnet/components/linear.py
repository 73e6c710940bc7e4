"""y = W x, with natural gradient.

Formulas and file fields: Kaldi's LinearComponent (nnet-simple-component.cc).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

from nnet3tools import tensor
from nnet3tools.nnet.components.base import Array, BackpropArgs, Indexes, Memo, Properties
from nnet3tools.nnet.components.common import (
    get_positive,
    matrix_from_file,
    optional_field,
    random_normal,
    read_field,
    write_field,
)
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.summary import parameter_stats
from nnet3tools.nnet.components.two_sided import TwoSidedNaturalGradient, two_sided_flops
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["LinearComponent"]


@register
class LinearComponent(TwoSidedNaturalGradient):
    """y = W x; `params` (output_dim, input_dim). Adds to its output."""

    def __init__(self, params: Array | None = None) -> None:
        self.params = tensor.zeros((0, 0)) if params is None else params
        self.orthonormal_constraint = 0.0
        self.use_natural_gradient = True
        """Kept in files; the update does not look at it, just as in Kaldi."""
        self.preconditioner_in = OnlineNaturalGradient(rank=40, update_period=4)
        self.preconditioner_out = OnlineNaturalGradient(rank=80, update_period=4)

    @property
    def input_dim(self) -> int:
        return int(self.params.shape[1])

    @property
    def output_dim(self) -> int:
        return int(self.params.shape[0])

    @property
    def properties(self) -> Properties:
        return (
            Properties.SIMPLE
            | Properties.UPDATABLE
            | Properties.BACKPROP_NEEDS_INPUT
            | Properties.PROPAGATE_ADDS
            | Properties.BACKPROP_ADDS
        )

    @property
    def input_matrix(self) -> Array:
        return self.params

    def parameters(self) -> dict[str, Array]:
        return {"params": self.params}

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        component = cls()
        component.read_updatable_config(line)
        component._init_parameters(line)
        component.preconditioners_from_config(line, component.input_dim, component.output_dim)
        component.use_natural_gradient = line.get_bool("use-natural-gradient", True)
        component.orthonormal_constraint = line.get_float("orthonormal-constraint", 0.0)
        return component

    def _init_parameters(self, line: ConfigLine) -> None:
        if "matrix" in line:
            rxfilename = line.get_string("matrix")
            self.params = matrix_from_file(rxfilename)
            for key, dim in (("input-dim", self.input_dim), ("output-dim", self.output_dim)):
                if line.get_int(key, dim) != dim:
                    raise line.error(f"{key} differs from that of matrix '{rxfilename}' ({dim})")
            return
        input_dim, output_dim = get_positive(line, "input-dim"), get_positive(line, "output-dim")
        param_stddev = line.get_float("param-stddev", 1.0 / math.sqrt(input_dim))
        if param_stddev < 0.0:
            raise line.error("param-stddev must not be negative")
        self.params = random_normal((output_dim, input_dim), param_stddev)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        component = cls()
        component.read_updatable_common(reader)
        component.params = read_field(reader, "<Params>", reader.read_matrix)
        component.orthonormal_constraint = optional_field(
            reader, "<OrthonormalConstraint>", reader.read_float, 0.0
        )
        component.use_natural_gradient = read_field(
            reader, "<UseNaturalGradient>", reader.read_bool
        )
        rank_in = read_field(reader, "<RankInOut>", reader.read_int32)
        rank_out = reader.read_int32()
        alpha = read_field(reader, "<Alpha>", reader.read_float)
        history = read_field(reader, "<NumSamplesHistory>", reader.read_float)
        period = read_field(reader, "<UpdatePeriod>", reader.read_int32)
        component.set_preconditioners(reader, rank_in, rank_out, period, history, alpha)
        reader.expect_token("</LinearComponent>")
        return component

    def write(self, writer: Writer) -> None:
        self.write_updatable_common(writer)
        write_field(writer, "<Params>", self.params)
        if self.orthonormal_constraint != 0.0:
            write_field(writer, "<OrthonormalConstraint>", float(self.orthonormal_constraint))
        write_field(writer, "<UseNaturalGradient>", self.use_natural_gradient)
        write_field(writer, "<RankInOut>", self.preconditioner_in.rank)
        writer.write_int32(self.preconditioner_out.rank)
        for token in ("<Alpha>", "<NumSamplesHistory>", "<UpdatePeriod>"):
            self.write_field_of_preconditioner(writer, token)
        writer.write_token("</LinearComponent>")

    def info(self) -> str:
        text = super().info() + parameter_stats("params", self.params, include_norms=True)
        if self.orthonormal_constraint != 0.0:
            text += f", orthonormal-constraint={self.orthonormal_constraint:g}"
        text += f", use-natural-gradient={str(self.use_natural_gradient).lower()}"
        return text + self.natural_gradient_info()

    def natural_gradient_flops(self, rows: int) -> int:
        return two_sided_flops(self, self.params, rows) if self.use_natural_gradient else 0

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        tensor.prod(out_value, in_value, self.params, trans_b=True, beta=1.0)

    def backprop(self, args: BackpropArgs) -> None:
        if args.in_deriv is not None:
            tensor.prod(args.in_deriv, args.out_deriv, self.params, beta=1.0)
        if args.to_update is not None:  # after in_deriv, for it may be this very component
            assert isinstance(args.to_update, LinearComponent)
            assert args.in_value is not None
            args.to_update._update(args.in_value, args.out_deriv)

    def _update(self, in_value: Array, out_deriv: Array) -> None:
        """W += lr dF/dy^T x, both preconditioned unless this holds a plain gradient."""
        if self.is_gradient:
            rate = self.learning_rate
            tensor.prod(self.params, out_deriv, in_value, trans_a=True, alpha=rate, beta=1.0)
            return
        with (
            tensor.scratch(in_value.shape, like=in_value) as inputs,
            tensor.scratch(out_deriv.shape, like=out_deriv) as deriv,
        ):
            tensor.copy(inputs, in_value)
            tensor.copy(deriv, out_deriv)
            rate = self.precondition(inputs, deriv)
            tensor.prod(self.params, deriv, inputs, trans_a=True, alpha=rate, beta=1.0)
