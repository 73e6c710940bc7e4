"""Random zeroing of elements or rows (Hinton et al. 2012).

File fields: Kaldi's DropoutComponent (nnet-simple-component.cc). Unlike the usual formulation the
kept elements are not scaled up in training; instead all are scaled down in test mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from nnet3tools import tensor
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    DropoutBase,
    Indexes,
    Memo,
    Properties,
)
from nnet3tools.nnet.components.common import (
    get_positive,
    optional_field,
    read_field,
    require,
    write_field,
)
from nnet3tools.nnet.components.registry import register

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["DropoutComponent"]

_scaled = tensor.element("_1 = _2 * _3")
_keep_where_above = tensor.element("_1 = where(_3 > _4, _2, 0)")
# The output is zero or the input; where the input is zero, nobody knows: take it as kept.
_backprop = tensor.element("_1 = where(_2 == 0, _4, _4 * _3 / where(_2 == 0, 1, _2))")


@register
class DropoutComponent(DropoutBase):
    """Zeroes a `dropout_proportion` of the elements, or of the rows if `dropout_per_frame`."""

    def __init__(
        self, dim: int, dropout_proportion: float = 0.0, dropout_per_frame: bool = False
    ) -> None:
        self.dim = dim
        self.dropout_proportion = dropout_proportion
        self.dropout_per_frame = dropout_per_frame
        self.test_mode = False

    @property
    def input_dim(self) -> int:
        return self.dim

    @property
    def output_dim(self) -> int:
        return self.dim

    @property
    def properties(self) -> Properties:
        return (
            Properties.SIMPLE
            | Properties.BACKPROP_IN_PLACE
            | Properties.BACKPROP_NEEDS_INPUT
            | Properties.BACKPROP_NEEDS_OUTPUT
            | Properties.RANDOM
        )

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        component = cls(
            get_positive(line, "dim"),
            line.get_float("dropout-proportion"),
            line.get_bool("dropout-per-frame", False),
        )
        if not 0.0 <= component.dropout_proportion <= 1.0:
            raise line.error("dropout-proportion must be between 0 and 1")
        component.test_mode = line.get_bool("test-mode", False)
        return component

    @classmethod
    def read(cls, reader: Reader) -> Self:
        component = cls(
            read_field(reader, "<Dim>", reader.read_int32),
            read_field(reader, "<DropoutProportion>", reader.read_float),
            optional_field(reader, "<DropoutPerFrame>", reader.read_bool, False),
        )
        proportion = component.dropout_proportion
        require(reader, 0.0 <= proportion <= 1.0, f"impossible <DropoutProportion> {proportion:g}")
        component.test_mode = optional_field(reader, "<TestMode>", reader.read_bool, False)
        reader.expect_token("</DropoutComponent>")
        return component

    def write(self, writer: Writer) -> None:
        writer.write_token("<DropoutComponent>")
        write_field(writer, "<Dim>", self.dim)
        write_field(writer, "<DropoutProportion>", float(self.dropout_proportion))
        write_field(writer, "<DropoutPerFrame>", self.dropout_per_frame)
        write_field(writer, "<TestMode>", self.test_mode)
        writer.write_token("</DropoutComponent>")

    def info(self) -> str:
        return (
            f"{self.type_name}, dim={self.dim}, dropout-proportion={self.dropout_proportion:g}"
            f", dropout-per-frame={str(self.dropout_per_frame).lower()}"
        )

    @property
    def average_scale(self) -> float:
        return 1.0 / (1.0 - self.dropout_proportion)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        if self.test_mode:
            _scaled(out_value, in_value, 1.0 - self.dropout_proportion)
            return None
        rows, cols = in_value.shape
        shape = (rows, 1) if self.dropout_per_frame else (rows, cols)
        with tensor.scratch(shape, like=in_value) as chances:
            tensor.random.uniform(chances)
            _keep_where_above(out_value, in_value, chances, self.dropout_proportion)

    def backprop(self, args: BackpropArgs) -> None:
        if args.in_deriv is not None:
            _backprop(args.in_deriv, args.in_value, args.out_value, args.out_deriv)
