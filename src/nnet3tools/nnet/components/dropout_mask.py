"""DropoutMaskComponent: random masks that another component, such as an LSTM, multiplies by.

File fields and distributions: Kaldi's DropoutMaskComponent (nnet-general-component.cc).
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
)
from nnet3tools.nnet.components.fields import Flag, Int, Mark, Proportion
from nnet3tools.nnet.components.registry import register

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
            if self.output_dim in (2, 3):
                self._exclusive_pair(out_value)

    def _exclusive_pair(self, out_value: Array) -> None:
        """Draw the first two mask columns so that no row has zeros in both."""
        with tensor.scratch((out_value.shape[0], 1), like=out_value) as uniform:
            tensor.random.uniform(uniform)
            _zero_one(out_value[:, 0:1], uniform, self.dropout_proportion)
            _one_zero(out_value[:, 1:2], uniform, 1.0 - self.dropout_proportion)

    def backprop(self, args: BackpropArgs) -> None:
        """Do nothing: there are no inputs and no parameters."""
