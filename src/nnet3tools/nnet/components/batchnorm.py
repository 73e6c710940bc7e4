"""Batch normalization: each column gets mean zero and a given root mean square over the rows.

With n rows, mean m and variance v of a column, forward and backward (Kaldi's BatchNormComponent,
nnet-normalize-component.cc; Ioffe and Szegedy 2015):

    scale = target_rms / sqrt(v + epsilon)
    z = scale (x - m)
    dF/dx = scale (dF/dz - mean(dF/dz)) - z scale / target_rms^2 mean(z dF/dz)
"""

from __future__ import annotations

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log
from nnet3tools.io.stream import Reader
from nnet3tools.nnet.components.array_fields import Count, Derived, Statistic, rounded_average
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    BatchStatisticsComponent,
    Component,
    Indexes,
    Memo,
    Properties,
)
from nnet3tools.nnet.components.common import as_blocks
from nnet3tools.nnet.components.fields import Flag, Float, Int
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.summary import summarize_vector
from nnet3tools.nnet.config import ConfigLine

# Each step is rounded to float32 in Kaldi's order (ComputeDerived); the rounding matters if a
# variance is much smaller than the squared mean.
_set_test_scale = tensor.element(
    "mean = float32(sum) * per_row; variance = float32(sumsq) * per_row - mean * mean;"
    "scale = pow(max(variance, 0) + epsilon, -0.5) * target_rms; offset = -mean * scale",
    "scale offset sum sumsq per_row epsilon target_rms",
)
_scale_and_shift = tensor.element("_1 = _2 * _3 + _4")
_scaled = tensor.element("_1 = _2 * _3")
_add_square = tensor.element("_1 += _2 * _2")


@dataclass(slots=True)
class _Memo:
    """Results of batch norm's forward pass for its backward pass and its statistics.

    The rows of `stats` (3, block_dim) are the mean, the mean of the squares, and the scale.
    """

    num_rows: int
    stats: Array


class _BlockDim(Int):
    """Field for a number of columns; in config lines -1 stands for the component's `dim`."""

    def from_config(self, line: ConfigLine, owner: BatchNormComponent) -> None:
        super().from_config(line, owner)
        if owner.block_dim == -1:
            owner.block_dim = owner.dim


class _SumOfSquares(Statistic):
    """Field for a sum of squares; files store the variance, which also needs `stats_sum`."""

    def read(self, reader: Reader, owner: BatchNormComponent) -> None:
        super().read(reader, owner)
        mean, variance = owner.stats_sum, owner.stats_sumsq  # averages before `after_read`
        if mean.shape != variance.shape:
            raise reader.error(f"<StatsMean> of {mean.size} and <StatsVar> of {variance.size}")
        owner.stats_sumsq = variance + mean * mean

    def file_value(self, owner: BatchNormComponent) -> Array:
        return owner.mean_and_variance()[1]


@register
class BatchNormComponent(BatchStatisticsComponent):
    """Normalizes columns over the minibatch; in test mode by statistics from training.

    Blocks of `block_dim` columns share statistics. `stats_sum` and `stats_sumsq` (block_dim,) sum
    inputs and their squares over `count` rows in float64.
    """

    FORMULA = "y = target-rms (x - mean) / sqrt(variance + epsilon)"
    KEYS = "block-dim=dim"
    PROPERTIES = Properties.BACKPROP_NEEDS_OUTPUT | Properties.IN_PLACE
    INFO = "dim block_dim epsilon target_rms count test_mode"
    flops_per_input = 5  # of which 3 for mean and variance

    dim = Int("<Dim>", "dim", positive=True)
    block_dim = _BlockDim("<BlockDim>", "block-dim", lambda c: c.dim)
    epsilon = Float("<Epsilon>", "epsilon", 1.0e-3, positive=True)
    target_rms = Float("<TargetRms>", "target-rms", 1.0, positive=True)
    test_mode = Flag("<TestMode>", "test-mode", False)
    count = Count("<Count>", key="count")
    stats_sum = Statistic("<StatsMean>", "count", shape=lambda c: (c.block_dim,))
    stats_sumsq = _SumOfSquares("<StatsVar>", "count", shape=lambda c: (c.block_dim,))
    test_scale = Derived()
    test_offset = Derived()
    """In test mode y = test_scale * x + test_offset (block_dim,); else None."""

    @property
    def properties(self) -> Properties:
        flags = self.FLAGS | Properties.USES_MEMO
        if self.block_dim < self.dim:
            flags |= Properties.CONTIGUOUS
        if self.test_mode:
            flags &= ~(Properties.USES_MEMO | Properties.STORES_STATS)
        return flags

    def problem(self) -> str | None:
        if self.block_dim <= 0 or self.dim % self.block_dim != 0:
            return f"block-dim must be positive and divide dim, found {self.block_dim}"
        return None

    def mean_and_variance(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of columns, (block_dim,) float32, rounded at each step like Kaldi's."""
        mean, var = (rounded_average(s, self.count) for s in (self.stats_sum, self.stats_sumsq))
        return mean, var if self.count.is_zero() else var - mean * mean

    def info(self) -> str:
        text = super().info()
        if self.count.is_positive():
            mean, var = self.mean_and_variance()
            stddev = np.sqrt(np.maximum(var, np.float32(0.0)))
            text += f", data-mean={summarize_vector(mean)}, data-stddev={summarize_vector(stddev)}"
        return text

    # -- test mode

    @property
    def couples_rows(self) -> bool:
        """True outside test mode: mean and variance depend on all rows of the minibatch."""
        return not self.test_mode

    def set_test_mode(self, test_mode: bool) -> None:
        """Normalize by the stored statistics (True) or by each minibatch's statistics (False)."""
        self.test_mode = test_mode
        self.derive()

    def derive(self) -> None:
        """In test mode, compute test_scale and test_offset from statistics; else make both None.

        The output in test mode is x * test_scale + test_offset.
        """
        self.test_scale = self.test_offset = None
        if not self.test_mode:
            return
        if self.count.is_zero():
            self._make_up_statistics()
        scale, offset = (
            tensor.empty((self.block_dim,), like=self.stats_sum, dtype=np.float32) for _ in range(2)
        )
        _set_test_scale(
            scale, offset, self.stats_sum, self.stats_sumsq, 1.0 / self.count, self.epsilon,
            self.target_rms,
        )  # fmt: skip
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

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        x, y = as_blocks(in_value, self.block_dim), as_blocks(out_value, self.block_dim)
        if self.test_mode:
            _scale_and_shift(y, x, self.test_scale, self.test_offset)
            return None
        stats = tensor.persistent_array((3, self.block_dim), like=x)
        tensor.batch_norm(y, stats, x, self.epsilon, self.target_rms)
        return _Memo(len(x), stats)

    def backprop(self, args: BackpropArgs) -> None:
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
        """Reset the statistics, except in test mode, where they determine the output."""
        if not self.test_mode:
            self.scale(0.0)

    def add(self, alpha: float, other: Component) -> None:
        super().add(alpha, other)
        self.derive()
