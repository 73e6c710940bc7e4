"""Dropout: random zeroing of elements or rows, and random masks for other components.

File fields and distributions: Kaldi's DropoutComponent (nnet-simple-component.cc) and
DropoutMaskComponent (nnet-general-component.cc). Dropout is that of Hinton et al. 2012, except that
elements are not scaled up in training but scaled down in test mode.
"""

from __future__ import annotations

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
from nnet3tools.nnet.components.fields import Flag, Int, Mark, Proportion
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


_spread = tensor.element("_1 = _1 * (4 * _2) + (1 - 2 * _2)")
_zero_one = tensor.element("_1 = where(_2 > _3, 1, 0)")
_one_zero = tensor.element("_1 = where(_2 < _3, 1, 0)")


@register
class DropoutMaskComponent(InputlessComponent, DropoutBase):
    """Outputs rows of zeros (with probability `dropout_proportion`) and ones; needs no input.

    With `continuous` an element is 1 plus dropout_proportion times a number uniform in [-2, 2]. In
    masks with two or three columns, for the gates of an LSTM, the first two columns are never both
    zero (for proportions up to 0.5).
    """

    FORMULA = "y = m; m is 0 with probability dropout-proportion, else 1"
    INFO = "output_dim dropout_proportion continuous"

    output_dim = Int("<OutputDim>", "output-dim", positive=True)
    dropout_proportion = Proportion("<DropoutProportion>", "dropout-proportion", 0.5)
    test_mode = Flag("<TestMode>", "test-mode", False, optional=True)
    continuous = Mark("<Continuous>", "continuous")

    @property
    def input_dim(self) -> int:
        return self.output_dim

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
            if self.output_dim in (2, 3):  # no row may have zeros in both of the first columns
                with tensor.scratch((out_value.shape[0], 1), like=out_value) as uniform:
                    tensor.random.uniform(uniform)
                    _zero_one(out_value[:, 0:1], uniform, self.dropout_proportion)
                    _one_zero(out_value[:, 1:2], uniform, 1.0 - self.dropout_proportion)

    def backprop(self, args: BackpropArgs) -> None:
        """Do nothing: there are no inputs and no parameters."""
