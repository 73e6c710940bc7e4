"""Batch normalization: every column to mean zero and a given root mean square over the rows.

With n rows, mean m and variance v of a column, forward and backward (Kaldi's BatchNormComponent,
nnet-normalize-component.cc; Ioffe and Szegedy 2015):

    scale = target_rms / sqrt(v + epsilon)
    z = scale (x - m)
    dF/dx = scale (dF/dz - mean(dF/dz)) - z scale / target_rms^2 mean(z dF/dz)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.io import log
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    BatchStatisticsComponent,
    Component,
    Indexes,
    Memo,
    Properties,
)
from nnet3tools.nnet.components.common import (
    as_blocks,
    get_positive,
    read_field,
    require,
    write_double_field,
    write_field,
)
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.summary import summarize_vector
from nnet3tools.tensor import host
from nnet3tools.tensor.counter import Counter

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["BatchNormComponent"]

# scale (_1) from uncentered variance (_2), mean (_3), epsilon (_4) and 1 / target_rms^2 (_5)
_set_scale = tensor.element("_1 = pow(max(_5 * _2 - _5 * _3 * _3, 0) + _5 * _4, -0.5)")
_scale_and_shift = tensor.element("_1 = _2 * _3 + _4")
_scaled = tensor.element("_1 = _2 * _3")
_set_offset = tensor.element("_1 = -_2 * _3")
_add_square = tensor.element("_1 += _2 * _2")


@dataclass(slots=True)
class _Memo:
    """What the forward pass of one minibatch leaves for the backward pass and the statistics."""

    num_rows: int
    stats: Array
    """(3, block_dim): mean, mean of the squares (uncentered variance), scale."""


@register
class BatchNormComponent(BatchStatisticsComponent):
    """Normalizes columns over the minibatch; in test mode by the statistics seen in training.

    Blocks of `block_dim` columns share their statistics. `stats_sum` and `stats_sumsq`
    (block_dim,) sum inputs and their squares over `count` rows, in float64.
    """

    count = Counter()

    def __init__(
        self,
        dim: int,
        block_dim: int | None = None,
        epsilon: float = 1.0e-3,
        target_rms: float = 1.0,
        test_mode: bool = False,
    ) -> None:
        self.dim = dim
        self.block_dim = dim if block_dim is None else block_dim
        self.epsilon, self.target_rms, self.test_mode = epsilon, target_rms, test_mode
        self.count = 0.0
        self.stats_sum = tensor.zeros((self.block_dim,), dtype=np.float64)
        self.stats_sumsq = tensor.zeros((self.block_dim,), dtype=np.float64)
        self.test_scale: Array | None = None
        self.test_offset: Array | None = None
        """In test mode y = test_scale * x + test_offset (block_dim,); else None."""

    @property
    def input_dim(self) -> int:
        return self.dim

    @property
    def output_dim(self) -> int:
        return self.dim

    @property
    def properties(self) -> Properties:
        flags = (
            Properties.SIMPLE
            | Properties.BACKPROP_NEEDS_OUTPUT
            | Properties.PROPAGATE_IN_PLACE
            | Properties.BACKPROP_IN_PLACE
        )
        if self.block_dim < self.dim:
            flags |= Properties.INPUT_CONTIGUOUS | Properties.OUTPUT_CONTIGUOUS
        if not self.test_mode:
            flags |= Properties.USES_MEMO | Properties.STORES_STATS
        return flags

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        dim = get_positive(line, "dim")
        block_dim = line.get_int("block-dim", -1)
        block_dim = dim if block_dim == -1 else block_dim
        if block_dim <= 0 or dim % block_dim != 0:
            raise line.error(f"block-dim must be positive and divide dim, found {block_dim}")
        component = cls(
            dim,
            block_dim,
            line.get_float("epsilon", 1.0e-3),
            line.get_float("target-rms", 1.0),
            line.get_bool("test-mode", False),
        )
        for key, value in (("epsilon", component.epsilon), ("target-rms", component.target_rms)):
            if not value > 0.0:
                raise line.error(f"{key} must be positive, found {value:g}")
        component._derive()
        return component

    @classmethod
    def read(cls, reader: Reader) -> Self:
        dim = read_field(reader, "<Dim>", reader.read_int32)
        block_dim = read_field(reader, "<BlockDim>", reader.read_int32)
        epsilon = read_field(reader, "<Epsilon>", reader.read_float)
        target_rms = read_field(reader, "<TargetRms>", reader.read_float)
        require(
            reader,
            dim > 0 and block_dim > 0 and dim % block_dim == 0 and epsilon > 0 and target_rms > 0,
            f"impossible batch norm: dim {dim}, block-dim {block_dim}, epsilon {epsilon:g}, "
            f"target-rms {target_rms:g}",
        )
        test_mode = read_field(reader, "<TestMode>", reader.read_bool)
        count = read_field(reader, "<Count>", reader.read_double)
        mean = read_field(reader, "<StatsMean>", lambda: reader.read_vector(np.float64))
        var = read_field(reader, "<StatsVar>", lambda: reader.read_vector(np.float64))
        require(
            reader,
            mean.size == var.size and mean.size in (0, block_dim),
            f"<StatsMean> of {mean.size}, <StatsVar> of {var.size}, expected {block_dim} numbers",
        )
        component = cls(dim, block_dim, epsilon, target_rms, test_mode)
        component.count = count
        if mean.size:
            component.stats_sum = mean * count
            component.stats_sumsq = (var + mean * mean) * count
        reader.expect_token("</BatchNormComponent>")
        component._derive()
        return component

    def write(self, writer: Writer) -> None:
        writer.write_token("<BatchNormComponent>")
        write_field(writer, "<Dim>", self.dim)
        write_field(writer, "<BlockDim>", self.block_dim)
        write_field(writer, "<Epsilon>", float(self.epsilon))
        write_field(writer, "<TargetRms>", float(self.target_rms))
        write_field(writer, "<TestMode>", self.test_mode)
        write_double_field(writer, "<Count>", self.count)
        mean, var = self._mean_and_variance()
        write_field(writer, "<StatsMean>", mean)
        write_field(writer, "<StatsVar>", var)
        writer.write_token("</BatchNormComponent>")

    def _mean_and_variance(self) -> tuple[np.ndarray, np.ndarray]:
        """Float32 on the host, each step rounded as Kaldi rounds it."""
        mean = tensor.to_host(self.stats_sum).astype(np.float32)
        var = tensor.to_host(self.stats_sumsq).astype(np.float32)
        if self.count != 0.0:
            mean = mean * np.float32(1.0 / self.count)
            var = var * np.float32(1.0 / self.count)
            var = var - mean * mean
        return mean, var

    def info(self) -> str:
        text = (
            f"{self.type_name}, dim={self.dim}, block-dim={self.block_dim}"
            f", epsilon={self.epsilon:g}, target-rms={self.target_rms:g}, count={self.count:g}"
            f", test-mode={str(self.test_mode).lower()}"
        )
        if self.count > 0:
            mean, var = self._mean_and_variance()
            stddev = np.sqrt(np.maximum(var, np.float32(0.0)))
            text += f", data-mean={summarize_vector(mean)}, data-stddev={summarize_vector(stddev)}"
        return text

    # -- test mode

    def set_test_mode(self, test_mode: bool) -> None:
        """Normalize by the statistics kept (true), or by each minibatch's own (false)."""
        self.test_mode = test_mode
        self._derive()

    def _derive(self) -> None:
        """Set test_scale and test_offset from the statistics."""
        self.test_scale = self.test_offset = None
        if not self.test_mode:
            return
        if self.count == 0.0:
            self._make_up_statistics()
        mean = tensor.empty((self.block_dim,), like=self.stats_sum, dtype=np.float32)
        uvar, scale, offset = (tensor.empty(mean.shape, like=mean) for _ in range(3))
        _scaled(mean, self.stats_sum, 1.0 / self.count)
        _scaled(uvar, self.stats_sumsq, 1.0 / self.count)
        _set_scale(scale, uvar, mean, self.epsilon, 1.0 / self.target_rms**2)
        _set_offset(offset, mean, scale)
        self.test_scale, self.test_offset = scale, offset

    def _make_up_statistics(self) -> None:
        log.warning(
            "test mode is set but there is no data count: making random statistics. That is no "
            "problem in tests or where the first model's probability is computed; elsewhere "
            "something is very wrong."
        )
        self.count = 1.0
        tensor.random.normal(self.stats_sum)
        tensor.random.normal(self.stats_sumsq)
        _add_square(self.stats_sumsq, self.stats_sum)

    # -- running

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Sum and sum of squares (3), subtract the mean, scale."""
        return 5 * rows * self.input_dim

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        x, y = as_blocks(in_value, self.block_dim), as_blocks(out_value, self.block_dim)
        if self.test_mode:
            _scale_and_shift(y, x, self.test_scale, self.test_offset)
            return None
        stats = host.kept((3, self.block_dim), like=x)
        tensor.batch_norm(y, stats, x, self.epsilon, self.target_rms)
        return _Memo(len(x), stats)

    def backprop(self, args: BackpropArgs) -> None:
        if args.in_deriv is None:
            return
        z, dz, dx = (
            as_blocks(m, self.block_dim) for m in (args.out_value, args.out_deriv, args.in_deriv)
        )
        if self.test_mode:
            _scaled(dx, dz, self.test_scale)
            return
        if not isinstance(args.memo, _Memo):
            raise ProgramError(f"{args.debug_info}: batch norm needs the memo of its forward pass")
        tensor.batch_norm_backprop(dx, z, dz, args.memo.stats[2], self.target_rms)

    # -- statistics

    def store_stats(self, in_value: Array, out_value: Array, memo: object) -> None:
        assert isinstance(memo, _Memo)
        self.count += memo.num_rows
        tensor.add(self.stats_sum, memo.stats[0], alpha=memo.num_rows)
        tensor.add(self.stats_sumsq, memo.stats[1], alpha=memo.num_rows)

    def zero_stats(self) -> None:
        """Not in test mode: there the statistics are what the component computes with."""
        if not self.test_mode:
            self.scale(0.0)

    def scale(self, scale: float) -> None:
        if scale == 0.0:
            self.count = 0.0
        else:
            self.count *= scale
        for stats in (self.stats_sum, self.stats_sumsq):
            if scale == 0.0:
                tensor.fill(stats, 0.0)
            else:
                tensor.scale(stats, scale)

    def add(self, alpha: float, other: Component) -> None:
        assert isinstance(other, BatchNormComponent)
        if other.count != 0.0:
            self.count += alpha * other.count
        tensor.add(self.stats_sum, other.stats_sum, alpha=alpha)
        tensor.add(self.stats_sumsq, other.stats_sumsq, alpha=alpha)
        self._derive()
