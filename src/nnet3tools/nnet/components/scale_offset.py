"""y = x + b and y = s x + b: trainable offsets, and scales with offsets, of columns or blocks.

Formulas and file fields: Kaldi's PerElementOffsetComponent and ScaleAndOffsetComponent
(nnet-simple-component.cc).
"""

from __future__ import annotations

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
    as_blocks,
    checked_natural_gradient,
    get_positive,
    optional_field,
    read_field,
    require,
    vector_from_file,
    write_field,
)
from nnet3tools.nnet.components.per_element import add_preconditioned_rows, random_vector
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.summary import parameter_stats
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["PerElementOffsetComponent", "ScaleAndOffsetComponent"]

_SMALLEST_SCALE = 1.0e-4
"""Scales are used as if at least this far from zero, so that the input can be recovered."""

_plus = tensor.element("_1 = _2 + _3")
_multiply = tensor.element("_1 = _2 * _3")
_sum_rows = tensor.aggregate("_1", "sum", axis=0)
_min = tensor.aggregate("_1", "min", axis=None)
_max = tensor.aggregate("_1", "max", axis=None)
_away_from_zero = tensor.element("_1 = where(abs(_2) >= _3, _2, where(_2 >= 0, _3, -_3))")
_scale_and_shift = tensor.element("_1 = _2 * _3 + _4")
# derivative of the objective by the scale, of every row; the input is recovered from the output
_scale_deriv = tensor.element("_1 = (_2 - _4) / _3 * _5")


@register
class PerElementOffsetComponent(UpdatableComponent):
    """y = x + offsets, the offsets (block_dim,) repeated over the blocks of `dim` columns."""

    def __init__(self, offsets: Array | None = None, dim: int | None = None) -> None:
        self.offsets = tensor.zeros((0,)) if offsets is None else offsets
        self.dim = int(self.offsets.shape[0]) if dim is None else dim
        self.use_natural_gradient = True
        self.preconditioner = OnlineNaturalGradient(rank=20, update_period=4)

    @property
    def input_dim(self) -> int:
        return self.dim

    @property
    def output_dim(self) -> int:
        return self.dim

    @property
    def properties(self) -> Properties:
        blocks = self.dim != self.offsets.shape[0]
        return (
            Properties.SIMPLE
            | Properties.UPDATABLE
            | Properties.PROPAGATE_IN_PLACE
            | Properties.BACKPROP_IN_PLACE
            | (Properties.OUTPUT_CONTIGUOUS if blocks else Properties(0))
        )

    def parameters(self) -> dict[str, Array]:
        return {"offsets": self.offsets}

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        component = cls()
        component.read_updatable_config(line)
        if "vector" in line:
            component.offsets = vector_from_file(line.get_string("vector"))
            component.dim = get_positive(line, "dim", int(component.offsets.shape[0]))
        else:
            component.dim = dim = get_positive(line, "dim")
            component.offsets = random_vector(line, get_positive(line, "block-dim", dim), 0.0)
        if component.dim % component.offsets.shape[0] != 0:
            raise line.error(f"{component.offsets.shape[0]} offsets do not divide the dim")
        component.use_natural_gradient = line.get_bool("use-natural-gradient", True)
        return component

    @classmethod
    def read(cls, reader: Reader) -> Self:
        component = cls()
        component.read_updatable_common(reader)
        component.offsets = read_field(reader, "<Offsets>", reader.read_vector)
        component.is_gradient = optional_field(
            reader, "<IsGradient>", reader.read_bool, component.is_gradient
        )
        component.dim = num_offsets = int(component.offsets.shape[0])
        if reader.peek_token() == "<Dim>":
            component.dim = read_field(reader, "<Dim>", reader.read_int32)
            component.use_natural_gradient = read_field(
                reader, "<UseNaturalGradient>", reader.read_bool
            )
        require(
            reader,
            num_offsets > 0 and component.dim % num_offsets == 0,
            f"{num_offsets} <Offsets> do not divide <Dim> {component.dim}",
        )
        reader.expect_token("</PerElementOffsetComponent>")
        return component

    def write(self, writer: Writer) -> None:
        self.write_updatable_common(writer)
        write_field(writer, "<Offsets>", self.offsets)
        write_field(writer, "<Dim>", self.dim)
        write_field(writer, "<UseNaturalGradient>", self.use_natural_gradient)
        writer.write_token("</PerElementOffsetComponent>")

    def info(self) -> str:
        text = f"{super().info()}, offsets-min={_min(self.offsets):g}"
        text += f", offsets-max={_max(self.offsets):g}, block-dim={self.offsets.shape[0]}"
        text += f", use-natural-gradient={str(self.use_natural_gradient).lower()}"
        return text + parameter_stats("offsets", self.offsets, include_mean=True)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        block_dim = self.offsets.shape[0]
        if block_dim == self.dim:
            _plus(out_value, in_value, self.offsets)
        else:  # only the output is sure to be contiguous
            tensor.copy(out_value, in_value)
            tensor.add(as_blocks(out_value, block_dim), self.offsets)

    def backprop(self, args: BackpropArgs) -> None:
        if args.in_deriv is not None:
            tensor.copy(args.in_deriv, args.out_deriv)
        if args.to_update is not None:
            assert isinstance(args.to_update, PerElementOffsetComponent)
            args.to_update._update(as_blocks(args.out_deriv, self.offsets.shape[0]))

    def _update(self, out_deriv: Array) -> None:
        if self.is_gradient or not self.use_natural_gradient:
            _sum_rows(self.offsets, out_deriv, alpha=self.learning_rate, beta=1.0)
            return
        with tensor.scratch(out_deriv.shape, like=out_deriv) as derivs:
            tensor.copy(derivs, out_deriv)
            add_preconditioned_rows(self.offsets, derivs, self.learning_rate, self.preconditioner)


@register
class ScaleAndOffsetComponent(UpdatableComponent):
    """y = scales * x + offsets, both (block_dim,), repeated over the blocks of `dim` columns."""

    def __init__(self, dim: int = 0, block_dim: int | None = None, rank: int = 20) -> None:
        self.dim = dim
        shape = (dim if block_dim is None else block_dim,)
        self.scales = np.ones(shape, np.float32)
        self.offsets = np.zeros(shape, np.float32)
        self.use_natural_gradient = True
        self.scale_preconditioner = OnlineNaturalGradient(rank, update_period=4)
        self.offset_preconditioner = OnlineNaturalGradient(rank, update_period=4)

    @property
    def input_dim(self) -> int:
        return self.dim

    @property
    def output_dim(self) -> int:
        return self.dim

    @property
    def block_dim(self) -> int:
        """Columns of a block."""
        return int(self.scales.shape[0])

    @property
    def properties(self) -> Properties:
        flags = (
            Properties.SIMPLE
            | Properties.UPDATABLE
            | Properties.PROPAGATE_IN_PLACE
            | Properties.BACKPROP_IN_PLACE
            | Properties.BACKPROP_NEEDS_OUTPUT
        )
        if self.block_dim != self.dim:
            flags |= Properties.INPUT_CONTIGUOUS | Properties.OUTPUT_CONTIGUOUS
        return flags

    def parameters(self) -> dict[str, Array]:
        return {"scales": self.scales, "offsets": self.offsets}

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        dim = get_positive(line, "dim")
        block_dim = get_positive(line, "block-dim", dim)
        if dim % block_dim != 0:
            raise line.error(f"block-dim must divide dim, found {block_dim}")
        component = cls(dim, block_dim, line.get_int("rank", 20))
        checked_natural_gradient(component.scale_preconditioner, line)
        component.read_updatable_config(line)
        component.use_natural_gradient = line.get_bool("use-natural-gradient", True)
        return component

    @classmethod
    def read(cls, reader: Reader) -> Self:
        component = cls()
        component.read_updatable_common(reader)
        component.dim = read_field(reader, "<Dim>", reader.read_int32)
        component.scales = read_field(reader, "<Scales>", reader.read_vector)
        component.offsets = read_field(reader, "<Offsets>", reader.read_vector)
        component.use_natural_gradient = read_field(
            reader, "<UseNaturalGradient>", reader.read_bool
        )
        rank = read_field(reader, "<Rank>", reader.read_int32)
        component.scale_preconditioner.rank = component.offset_preconditioner.rank = rank
        checked_natural_gradient(component.scale_preconditioner, reader)
        # Kaldi sets the update period only when it makes a component from a config.
        component.scale_preconditioner.update_period = 1
        component.offset_preconditioner.update_period = 1
        num_scales, num_offsets = component.block_dim, int(component.offsets.shape[0])
        require(
            reader,
            num_scales == num_offsets > 0 and component.dim % num_scales == 0,
            f"{num_scales} <Scales> and {num_offsets} <Offsets> for <Dim> {component.dim}",
        )
        reader.expect_token("</ScaleAndOffsetComponent>")
        return component

    def write(self, writer: Writer) -> None:
        self.write_updatable_common(writer)
        write_field(writer, "<Dim>", self.dim)
        write_field(writer, "<Scales>", self.scales)
        write_field(writer, "<Offsets>", self.offsets)
        write_field(writer, "<UseNaturalGradient>", self.use_natural_gradient)
        write_field(writer, "<Rank>", self.scale_preconditioner.rank)
        writer.write_token("</ScaleAndOffsetComponent>")

    def info(self) -> str:
        text = f"{super().info()}, rank={self.scale_preconditioner.rank}"
        if self.dim != self.block_dim:
            text += f", block-size={self.block_dim}"
        text += parameter_stats("scales", self.scales, include_mean=True)
        return text + parameter_stats("offsets", self.offsets, include_mean=True)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        x, y = as_blocks(in_value, self.block_dim), as_blocks(out_value, self.block_dim)
        with tensor.scratch(self.scales.shape, like=self.scales) as scales:
            _away_from_zero(scales, self.scales, _SMALLEST_SCALE)
            _scale_and_shift(y, x, scales, self.offsets)

    def backprop(self, args: BackpropArgs) -> None:
        block_dim = self.block_dim
        deriv = as_blocks(args.out_deriv, block_dim)
        if args.to_update is not None:  # first, for in_deriv may be out_deriv
            assert isinstance(args.to_update, ScaleAndOffsetComponent)
            with (
                tensor.scratch(deriv.shape, like=deriv) as scale_derivs,
                tensor.scratch(self.scales.shape, like=self.scales) as scales,
            ):
                _away_from_zero(scales, self.scales, _SMALLEST_SCALE)
                y = as_blocks(args.out_value, block_dim)
                _scale_deriv(scale_derivs, y, scales, self.offsets, deriv)
                args.to_update._update(scale_derivs, deriv)
        if args.in_deriv is not None:
            _multiply(as_blocks(args.in_deriv, block_dim), deriv, self.scales)

    def _update(self, scale_derivs: Array, out_deriv: Array) -> None:
        """Add the rows of both, preconditioned; `scale_derivs` is overwritten."""
        rate = self.learning_rate
        if self.is_gradient or not self.use_natural_gradient:
            _sum_rows(self.offsets, out_deriv, alpha=rate, beta=1.0)
            _sum_rows(self.scales, scale_derivs, alpha=rate, beta=1.0)
            return
        with tensor.scratch(out_deriv.shape, like=out_deriv) as offset_derivs:
            tensor.copy(offset_derivs, out_deriv)
            add_preconditioned_rows(self.offsets, offset_derivs, rate, self.offset_preconditioner)
        add_preconditioned_rows(self.scales, scale_derivs, rate, self.scale_preconditioner)
