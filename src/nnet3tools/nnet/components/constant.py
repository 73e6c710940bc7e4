"""Outputs that do not depend on the input, trainable or not.

File fields: Kaldi's ConstantComponent (nnet-general-component.cc) and ConstantFunctionComponent
(nnet-simple-component.cc).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from nnet3tools import tensor
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    InputlessComponent,
    Memo,
    Properties,
    UpdatableComponent,
)
from nnet3tools.nnet.components.common import (
    get_positive,
    random_normal,
    read_field,
    write_field,
)
from nnet3tools.nnet.components.per_element import add_preconditioned_rows
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.summary import parameter_stats
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["ConstantComponent", "ConstantFunctionComponent"]

_set_rows = tensor.element("_1 = _2")
_sum_rows = tensor.aggregate("_1", "sum", axis=0)


class _ConstantOutput(UpdatableComponent):
    """Every row is `output` (output_dim,)."""

    def __init__(self, output: Array) -> None:
        self.output = output
        self.is_updatable = True
        self.use_natural_gradient = True
        self.preconditioner = OnlineNaturalGradient()

    @property
    def output_dim(self) -> int:
        return int(self.output.shape[0])

    def parameters(self) -> dict[str, Array]:
        return {"output": self.output}

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        dim = get_positive(line, "output-dim")
        mean, stddev = line.get_float("output-mean", 0.0), line.get_float("output-stddev", 0.0)
        component = cls(random_normal((dim,), stddev, mean))
        component.read_updatable_config(line)
        component.is_updatable = line.get_bool("is-updatable", True)
        component.use_natural_gradient = line.get_bool("use-natural-gradient", True)
        return component

    @classmethod
    def read(cls, reader: Reader) -> Self:
        component = cls(tensor.zeros((0,)))
        component.read_updatable_common(reader)
        component._read_dims(reader)
        component.output = read_field(reader, "<Output>", reader.read_vector)
        component.is_updatable = read_field(reader, "<IsUpdatable>", reader.read_bool)
        component.use_natural_gradient = read_field(
            reader, "<UseNaturalGradient>", reader.read_bool
        )
        reader.expect_token(f"</{cls.type_name}>")
        return component

    def _read_dims(self, reader: Reader) -> None:
        """Fields before <Output>."""

    def _write_dims(self, writer: Writer) -> None:
        """Fields before <Output>."""

    def write(self, writer: Writer) -> None:
        self.write_updatable_common(writer)
        self._write_dims(writer)
        write_field(writer, "<Output>", self.output)
        write_field(writer, "<IsUpdatable>", self.is_updatable)
        write_field(writer, "<UseNaturalGradient>", self.use_natural_gradient)
        writer.write_token(f"</{self.type_name}>")

    def _dims_info(self) -> str:
        return f"output-dim={self.output_dim}"

    def info(self) -> str:
        updatable, natural = (
            "true" if flag else "false" for flag in (self.is_updatable, self.use_natural_gradient)
        )
        return (
            f"{super().info()}, {self.type_name}, {self._dims_info()}, is-updatable={updatable}"
            f", use-natural-gradient={natural}"
            f"{parameter_stats('output', self.output, include_mean=True)}"
        )

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        _set_rows(out_value, self.output)

    def backprop(self, args: BackpropArgs) -> None:
        if args.to_update is None:
            return
        assert isinstance(args.to_update, _ConstantOutput)
        if args.to_update.is_updatable:
            args.to_update._update(args.out_deriv)

    def _update(self, out_deriv: Array) -> None:
        if self.is_gradient or not self.use_natural_gradient:
            _sum_rows(self.output, out_deriv, alpha=self.learning_rate, beta=1.0)
            return
        with tensor.scratch(out_deriv.shape, like=out_deriv) as derivs:
            tensor.copy(derivs, out_deriv)
            add_preconditioned_rows(self.output, derivs, self.learning_rate, self.preconditioner)

    # Where it is not updatable the output is no parameter: it must survive averaging.

    def scale(self, scale: float) -> None:
        if self.is_updatable:
            super().scale(scale)

    def add(self, alpha: float, other: Component) -> None:
        if self.is_updatable:
            super().add(alpha, other)


@register
class ConstantComponent(InputlessComponent, _ConstantOutput):
    """Needs no input at all."""

    @property
    def input_dim(self) -> int:
        # Nothing is ever read; Kaldi gives the output dimension here.
        return self.output_dim

    @property
    def properties(self) -> Properties:
        return Properties.UPDATABLE if self.is_updatable else Properties(0)


@register
class ConstantFunctionComponent(_ConstantOutput):
    """A simple component whose input does not matter."""

    def __init__(self, output: Array, input_dim: int = 0) -> None:
        super().__init__(output)
        self._input_dim = input_dim

    @property
    def input_dim(self) -> int:
        return self._input_dim

    @property
    def properties(self) -> Properties:
        flags = Properties.SIMPLE | Properties.BACKPROP_ADDS
        if self.is_updatable:
            flags |= Properties.UPDATABLE
        if self.input_dim == self.output_dim:
            flags |= Properties.PROPAGATE_IN_PLACE
        return flags

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        component = super().from_config(line)
        component._input_dim = get_positive(line, "input-dim")
        return component

    def _read_dims(self, reader: Reader) -> None:
        self._input_dim = read_field(reader, "<InputDim>", reader.read_int32)

    def _write_dims(self, writer: Writer) -> None:
        write_field(writer, "<InputDim>", self.input_dim)

    def _dims_info(self) -> str:
        return f"input-dim={self.input_dim}, output-dim={self.output_dim}"
