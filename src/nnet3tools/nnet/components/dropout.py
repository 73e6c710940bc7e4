"""DropoutComponent: random zeroing of elements or rows (Hinton et al. 2012).

File fields: Kaldi's DropoutComponent (nnet-simple-component.cc). Elements are not scaled up in
training, unlike in the usual formulation, but scaled down in test mode.
"""

from __future__ import annotations

from nnet3tools import tensor
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    DropoutBase,
    Indexes,
    Memo,
    Properties,
)
from nnet3tools.nnet.components.fields import Flag, Int, Proportion
from nnet3tools.nnet.components.registry import register
from nnet3tools.tensor import recording

_scaled = tensor.element("_1 = _2 * _3")
_keep_where_above = tensor.element("_1 = where(_3 > _4, _2, 0)")
# The output is zero or the input. A zero input does not tell: treat it as kept.
_backprop = tensor.element("_1 = where(_2 == 0, _4, _4 * _3 / where(_2 == 0, 1, _2))")


@register
class DropoutComponent(DropoutBase):
    """Zeroes a `dropout_proportion` of the elements, or of the rows if `dropout_per_frame`."""

    FORMULA = "y = m x; m is 0 with probability dropout-proportion, else 1"
    PROPERTIES = (
        Properties.BACKPROP_IN_PLACE
        | Properties.BACKPROP_NEEDS_INPUT
        | Properties.BACKPROP_NEEDS_OUTPUT
    )
    INFO = "dim dropout_proportion dropout_per_frame"

    dim = Int("<Dim>", "dim", positive=True)
    dropout_proportion = Proportion("<DropoutProportion>", "dropout-proportion")
    dropout_per_frame = Flag("<DropoutPerFrame>", "dropout-per-frame", False, optional=True)
    test_mode = Flag("<TestMode>", "test-mode", False, optional=True)

    @property
    def average_scale(self) -> float:
        return 1.0 / (1.0 - self.dropout_proportion)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        if self.test_mode:
            _scaled(out_value, in_value, 1.0 - self.dropout_proportion)
            return None
        if self.dropout_proportion == 0.0:  # nothing is dropped; draw only the seed, as Kaldi does
            recording.act(tensor.random.rand)
            tensor.copy(out_value, in_value)
            return None
        rows, cols = in_value.shape
        shape = (rows, 1) if self.dropout_per_frame else (rows, cols)
        with tensor.scratch(shape, like=in_value) as chances:
            tensor.random.uniform(chances)
            _keep_where_above(out_value, in_value, chances, self.dropout_proportion)

    def backprop(self, args: BackpropArgs) -> None:
        _backprop(args.in_deriv, args.in_value, args.out_value, args.out_deriv)
