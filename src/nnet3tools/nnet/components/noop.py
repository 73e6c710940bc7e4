"""NoOpComponent: y = x; derivatives may be scaled in the backward pass.

File fields: Kaldi's NoOpComponent (nnet-simple-component.cc).
"""

from __future__ import annotations

from typing import Any

from nnet3tools import tensor
from nnet3tools.io.stream import Reader
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    Properties,
)
from nnet3tools.nnet.components.fields import Float, Int, Obsolete
from nnet3tools.nnet.components.registry import register

_scaled_copy = tensor.element("_1 = _2 * _3")


class _BackpropScale(Float):
    """Field for the backprop scale; it is optional in files of Kaldi's older NoOpComponent."""

    def read(self, reader: Reader, owner: Any) -> None:
        if reader.peek_token() != "<ValueAvg>":
            super().read(reader, owner)


@register
class NoOpComponent(Component):
    """Copies its input; multiplies the derivative by `backprop_scale`."""

    FORMULA = "y = x; dx = backprop-scale dy"
    PROPERTIES = Properties.IN_PLACE
    INFO = "dim backprop_scale"
    flops_per_input = 0  # moves only

    dim = Int("<Dim>", "dim", positive=True)
    backprop_scale = _BackpropScale("<BackpropScale>", "backprop-scale", 1.0, show_default=False)
    value_avg = Obsolete("<ValueAvg>", "read_vector")
    deriv_avg = Obsolete("<DerivAvg>", "read_vector")
    count = Obsolete("<Count>")
    oderiv_rms = Obsolete("<OderivRms>", "read_vector")
    oderiv_count = Obsolete("<OderivCount>")
    num_dims_self_repaired = Obsolete("<NumDimsSelfRepaired>")
    num_dims_processed = Obsolete("<NumDimsProcessed>")

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        tensor.copy(out_value, in_value)

    def backprop(self, args: BackpropArgs) -> None:
        if self.backprop_scale == 1.0:
            tensor.copy(args.in_deriv, args.out_deriv)
        else:
            _scaled_copy(args.in_deriv, args.out_deriv, self.backprop_scale)
