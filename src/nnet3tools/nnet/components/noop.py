"""y = x; derivatives may be scaled on their way back.

File fields: Kaldi's NoOpComponent (nnet-simple-component.cc).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from nnet3tools import tensor
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
    optional_field,
    read_field,
    write_field,
)
from nnet3tools.nnet.components.registry import register

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["NoOpComponent"]

_scaled_copy = tensor.element("_1 = _2 * _3")


@register
class NoOpComponent(Component):
    """Copies its input; multiplies the derivative by `backprop_scale`."""

    def __init__(self, dim: int, backprop_scale: float = 1.0) -> None:
        self.dim, self.backprop_scale = dim, backprop_scale

    @property
    def input_dim(self) -> int:
        return self.dim

    @property
    def output_dim(self) -> int:
        return self.dim

    @property
    def properties(self) -> Properties:
        return Properties.SIMPLE | Properties.PROPAGATE_IN_PLACE | Properties.BACKPROP_IN_PLACE

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        return cls(get_positive(line, "dim"), line.get_float("backprop-scale", 1.0))

    @classmethod
    def read(cls, reader: Reader) -> Self:
        component = cls(read_field(reader, "<Dim>", reader.read_int32))
        if reader.peek_token() == "<ValueAvg>":
            _skip_old_statistics(reader)
        else:
            component.backprop_scale = read_field(reader, "<BackpropScale>", reader.read_float)
        reader.expect_token("</NoOpComponent>")
        return component

    def write(self, writer: Writer) -> None:
        writer.write_token("<NoOpComponent>")
        write_field(writer, "<Dim>", self.dim)
        write_field(writer, "<BackpropScale>", float(self.backprop_scale))
        writer.write_token("</NoOpComponent>")

    def info(self) -> str:
        scale = self.backprop_scale
        suffix = f", backprop-scale={scale:g}" if scale != 1.0 else ""
        return f"{self.type_name}, dim={self.dim}{suffix}"

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Only moves."""
        return 0

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        tensor.copy(out_value, in_value)

    def backprop(self, args: BackpropArgs) -> None:
        if args.in_deriv is None:
            return
        if self.backprop_scale == 1.0:
            tensor.copy(args.in_deriv, args.out_deriv)
        else:
            _scaled_copy(args.in_deriv, args.out_deriv, self.backprop_scale)


def _skip_old_statistics(reader: Reader) -> None:
    """Statistics of the days when this was a nonlinearity like others."""
    for token in ("<ValueAvg>", "<DerivAvg>"):
        read_field(reader, token, reader.read_vector)
    read_field(reader, "<Count>", reader.read_double)
    if reader.peek_token() == "<OderivRms>":
        read_field(reader, "<OderivRms>", reader.read_vector)
        read_field(reader, "<OderivCount>", reader.read_double)
    for token in ("<NumDimsSelfRepaired>", "<NumDimsProcessed>"):
        optional_field(reader, token, reader.read_double, 0.0)
