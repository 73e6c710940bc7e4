"""Softmax and log-softmax over the columns of each row.

Formulas: Kaldi's nnet-simple-component.cc.
"""

from __future__ import annotations

from nnet3tools import tensor
from nnet3tools.nnet.components.activation_stats import NonlinearComponent
from nnet3tools.nnet.components.base import Array, BackpropArgs, Indexes, Memo, Properties
from nnet3tools.nnet.components.registry import register

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
