"""Random masks that another component multiplies by, such as an LSTM's.

File fields and distributions: Kaldi's DropoutMaskComponent (nnet-general-component.cc).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from nnet3tools import tensor
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    DropoutBase,
    Indexes,
    InputlessComponent,
    Memo,
    Properties,
)
from nnet3tools.nnet.components.common import get_positive, optional_field, read_field, write_field
from nnet3tools.nnet.components.registry import register

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["DropoutMaskComponent"]

_spread = tensor.element("_1 = _1 * (4 * _2) + (1 - 2 * _2)")
_zero_one = tensor.element("_1 = where(_2 > _3, 1, 0)")
_one_zero = tensor.element("_1 = where(_2 < _3, 1, 0)")


@register
class DropoutMaskComponent(InputlessComponent, DropoutBase):
    """Rows of zeros (with probability `dropout_proportion`) and ones; needs no input.

    With `continuous`: 1 plus dropout_proportion times a number uniform in [-2, 2]. Of masks with
    two or three columns, which are for the gates of an LSTM, the first two are never both zero
    (for proportions up to a half).
    """

    def __init__(self, output_dim: int, dropout_proportion: float = 0.5) -> None:
        self._output_dim = output_dim
        self.dropout_proportion = dropout_proportion
        self.continuous = False

    @property
    def input_dim(self) -> int:
        return self._output_dim

    @property
    def output_dim(self) -> int:
        return self._output_dim

    @property
    def properties(self) -> Properties:
        return Properties.RANDOM

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        component = cls(get_positive(line, "output-dim"), line.get_float("dropout-proportion", 0.5))
        if not 0.0 <= component.dropout_proportion <= 1.0:
            raise line.error("dropout-proportion must be in [0, 1]")
        component.continuous = line.get_bool("continuous", False)
        component.test_mode = line.get_bool("test-mode", False)
        return component

    @classmethod
    def read(cls, reader: Reader) -> Self:
        component = cls(
            read_field(reader, "<OutputDim>", reader.read_int32),
            read_field(reader, "<DropoutProportion>", reader.read_float),
        )
        component.test_mode = optional_field(reader, "<TestMode>", reader.read_bool, False)
        component.continuous = optional_field(reader, "<Continuous>", lambda: True, False)
        reader.expect_token(f"</{cls.type_name}>")
        return component

    def write(self, writer: Writer) -> None:
        writer.write_token(f"<{self.type_name}>")
        write_field(writer, "<OutputDim>", self.output_dim)
        write_field(writer, "<DropoutProportion>", float(self.dropout_proportion))
        write_field(writer, "<TestMode>", self.test_mode)
        if self.continuous:
            writer.write_token("<Continuous>")
        writer.write_token(f"</{self.type_name}>")

    def info(self) -> str:
        text = f"{self.type_name}, output-dim={self.output_dim}"
        text += f", dropout-proportion={self.dropout_proportion:g}"
        return text + (", continuous=true" if self.continuous else "")

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        proportion = self.dropout_proportion
        if proportion == 0.0 or (self.test_mode and self.continuous):
            tensor.fill(out_value, 1.0)
        elif self.test_mode:
            tensor.fill(out_value, 1.0 - proportion)
        elif self.continuous:
            tensor.random.uniform(out_value)
            _spread(out_value, proportion)
        else:
            tensor.random.uniform(out_value)
            _zero_one(out_value, out_value, proportion)
            if self.output_dim in (2, 3):
                self._exclusive_pair(out_value)

    def _exclusive_pair(self, out_value: Array) -> None:
        """Make the first two columns zero at opposite ends of one uniform number a row."""
        with tensor.scratch((out_value.shape[0], 1), like=out_value) as uniform:
            tensor.random.uniform(uniform)
            _zero_one(out_value[:, 0:1], uniform, self.dropout_proportion)
            _one_zero(out_value[:, 1:2], uniform, 1.0 - self.dropout_proportion)

    def backprop(self, args: BackpropArgs) -> None:
        """There is nothing to go back to and nothing to update."""
