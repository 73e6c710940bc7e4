"""Scaling of rows to a given root mean square.

File fields: Kaldi's NormalizeComponent (nnet-normalize-component.cc).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

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
    as_blocks,
    expect_either,
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

__all__ = ["NormalizeComponent"]


@register
class NormalizeComponent(Component):
    """y = x target_rms / rms(x) per block of a row; optionally log rms(x) as one more column."""

    def __init__(
        self,
        dim: int,
        block_dim: int | None = None,
        target_rms: float = 1.0,
        add_log_stddev: bool = False,
    ) -> None:
        self.dim = dim
        self.block_dim = dim if block_dim is None else block_dim
        self.target_rms, self.add_log_stddev = target_rms, add_log_stddev

    @property
    def input_dim(self) -> int:
        return self.dim

    @property
    def output_dim(self) -> int:
        return self.dim + (self.dim // self.block_dim if self.add_log_stddev else 0)

    @property
    def properties(self) -> Properties:
        flags = Properties.SIMPLE | Properties.BACKPROP_NEEDS_INPUT | Properties.BACKPROP_ADDS
        if not self.add_log_stddev:
            flags |= Properties.PROPAGATE_IN_PLACE | Properties.BACKPROP_IN_PLACE
        if self.block_dim != self.dim:
            flags |= Properties.INPUT_CONTIGUOUS | Properties.OUTPUT_CONTIGUOUS
        return flags

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        dim = get_positive(line, "dim" if "dim" in line else "input-dim")
        block_dim = get_positive(line, "block-dim", dim)
        if dim % block_dim != 0:
            raise line.error(f"block-dim must divide dim, found {block_dim}")
        target_rms = line.get_float("target-rms", 1.0)
        if not target_rms > 0.0:
            raise line.error(f"target-rms must be positive, found {target_rms:g}")
        return cls(dim, block_dim, target_rms, line.get_bool("add-log-stddev", False))

    @classmethod
    def read(cls, reader: Reader) -> Self:
        expect_either(reader, "<InputDim>", "<Dim>")
        dim = reader.read_int32()
        block_dim = optional_field(reader, "<BlockDim>", reader.read_int32, dim)
        require(
            reader,
            dim > 0 and block_dim > 0 and dim % block_dim == 0,
            f"impossible dimensions: {dim} in blocks of {block_dim}",
        )
        component = cls(
            dim,
            block_dim,
            optional_field(reader, "<TargetRms>", reader.read_float, 1.0),
            optional_field(reader, "<AddLogStddev>", reader.read_bool, False),
        )
        if reader.peek_token() == "<ValueAvg>":  # statistics of old models
            read_field(reader, "<ValueAvg>", lambda: reader.read_vector(np.float64))
            read_field(reader, "<DerivAvg>", lambda: reader.read_vector(np.float64))
            read_field(reader, "<Count>", reader.read_double)
        reader.expect_token("</NormalizeComponent>")
        return component

    def write(self, writer: Writer) -> None:
        writer.write_token("<NormalizeComponent>")
        write_field(writer, "<InputDim>", self.dim)
        if self.block_dim != self.dim:
            write_field(writer, "<BlockDim>", self.block_dim)
        write_field(writer, "<TargetRms>", float(self.target_rms))
        write_field(writer, "<AddLogStddev>", self.add_log_stddev)
        writer.write_token("</NormalizeComponent>")

    def info(self) -> str:
        text = f"{super().info()}, target-rms={self.target_rms:g}"
        text += f", add-log-stddev={str(self.add_log_stddev).lower()}"
        return text + (f", block-dim={self.block_dim}" if self.block_dim != self.dim else "")

    @property
    def _output_block_dim(self) -> int:
        return self.block_dim + (1 if self.add_log_stddev else 0)

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Power, sum, and the scaling or root."""
        return 3 * rows * self.input_dim

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        x, y = as_blocks(in_value, self.block_dim), as_blocks(out_value, self._output_block_dim)
        tensor.normalize_per_row(y, x, self.target_rms, self.add_log_stddev)

    def backprop(self, args: BackpropArgs) -> None:
        if args.in_deriv is None:
            return
        tensor.diff_normalize_per_row(
            as_blocks(args.in_deriv, self.block_dim),
            as_blocks(args.in_value, self.block_dim),
            as_blocks(args.out_deriv, self._output_block_dim),
            self.target_rms,
            self.add_log_stddev,
        )
