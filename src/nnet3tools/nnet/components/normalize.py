"""Components that normalize each row: to a root mean square, or by softmax and log-softmax.

Formulas and file fields: Kaldi's NormalizeComponent (nnet-normalize-component.cc), SoftmaxComponent
and LogSoftmaxComponent (nnet-simple-component.cc).
"""

from __future__ import annotations

from nnet3tools import tensor
from nnet3tools.nnet.components.activation_stats import NonlinearComponent
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    Properties,
)
from nnet3tools.nnet.components.common import as_blocks, division_problem
from nnet3tools.nnet.components.fields import Flag, Float, Int, Obsolete
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.config import ConfigLine


class _Dim(Int):
    """Field for a dimension that config lines may give as dim=... or input-dim=..."""

    def config_value(self, line: ConfigLine) -> int:
        return line.get_int("dim" if "dim" in line else "input-dim")


@register
class NormalizeComponent(Component):
    """Scales each block of a row to root mean square `target_rms`: y = x target_rms / rms(x).

    With `add_log_stddev`, columns with log rms(x) of each block are appended.
    """

    FORMULA = "y = target-rms x / sqrt(mean of x_j^2 over j)"
    KEYS = "[dim] [input-dim]"
    PROPERTIES = Properties.BACKPROP_NEEDS_INPUT | Properties.BACKPROP_ADDS
    INFO = Component.INFO + " target_rms add_log_stddev block_dim"
    flops_per_input = 3  # power, sum, scaling or root

    dim = _Dim("<InputDim>", "dim", positive=True, also="<Dim>")
    block_dim = Int("<BlockDim>", "block-dim", lambda c: c.dim, positive=True, omit=True)
    target_rms = Float("<TargetRms>", "target-rms", 1.0, positive=True, optional=True)
    add_log_stddev = Flag("<AddLogStddev>", "add-log-stddev", False, optional=True)
    value_avg = Obsolete("<ValueAvg>", "read_vector")
    deriv_avg = Obsolete("<DerivAvg>", "read_vector")
    count = Obsolete("<Count>")

    @property
    def output_dim(self) -> int:
        return self.dim + (self.dim // self.block_dim if self.add_log_stddev else 0)

    @property
    def properties(self) -> Properties:
        flags = self.FLAGS if self.add_log_stddev else self.FLAGS | Properties.IN_PLACE
        return flags if self.block_dim == self.dim else flags | Properties.CONTIGUOUS

    def problem(self) -> str | None:
        return division_problem("block-dim", self.block_dim, "dim", self.dim)

    @property
    def _output_block_dim(self) -> int:
        return self.block_dim + (1 if self.add_log_stddev else 0)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        x, y = as_blocks(in_value, self.block_dim), as_blocks(out_value, self._output_block_dim)
        tensor.normalize_per_row(y, x, self.target_rms, self.add_log_stddev)

    def backprop(self, args: BackpropArgs) -> None:
        tensor.diff_normalize_per_row(
            as_blocks(args.in_deriv, self.block_dim),
            as_blocks(args.in_value, self.block_dim),
            as_blocks(args.out_deriv, self._output_block_dim),
            self.target_rms,
            self.add_log_stddev,
        )


_floor = tensor.element("_1 = max(_1, 1e-20)")


@register
class SoftmaxComponent(NonlinearComponent):
    """Softmax of each row, floored at 1e-20, so that the logarithm of a value is finite."""

    FORMULA = "y_i = exp(x_i) / (sum of exp(x_j) over j)"
    PROPERTIES = Properties.IN_PLACE | Properties.BACKPROP_NEEDS_OUTPUT
    flops_per_input = 5  # maximum, difference, exp, sum, quotient

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        tensor.softmax(out_value, in_value)
        _floor(out_value)

    def backprop(self, args: BackpropArgs) -> None:
        if args.to_update is not None:  # first, for in_deriv may be out_deriv
            assert isinstance(args.to_update, SoftmaxComponent)
            args.to_update.store_backprop_stats(args.out_deriv)
        tensor.softmax_backprop(args.in_deriv, args.out_value, args.out_deriv)

    def store_stats(self, in_value: Array, out_value: Array, memo: object) -> None:
        self.sum_stats(out_value)


@register
class LogSoftmaxComponent(NonlinearComponent):
    """Logarithm of the softmax of each row; like Kaldi's, it keeps no statistics of values."""

    FORMULA = "y_i = x_i - log(sum of exp(x_j) over j)"
    PROPERTIES = Properties.BACKPROP_NEEDS_OUTPUT
    flops_per_input = 5  # maximum, difference, exp, sum, difference

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        tensor.log_softmax(out_value, in_value)

    def backprop(self, args: BackpropArgs) -> None:
        if args.to_update is not None:
            assert isinstance(args.to_update, LogSoftmaxComponent)
            args.to_update.store_backprop_stats(args.out_deriv)
        tensor.log_softmax_backprop(args.in_deriv, args.out_value, args.out_deriv)

    def store_stats(self, in_value: Array, out_value: Array, memo: object) -> None:
        pass
