"""Components whose output does not depend on the input, trainable or not.

File fields: Kaldi's ConstantComponent (nnet-general-component.cc) and ConstantFunctionComponent
(nnet-simple-component.cc).
"""

from __future__ import annotations

from nnet3tools import tensor
from nnet3tools.nnet.components.array_fields import Preconditioner, Side, Vector
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    InputlessComponent,
    Memo,
    Properties,
)
from nnet3tools.nnet.components.common import get_positive, random_normal
from nnet3tools.nnet.components.fields import Flag, Int
from nnet3tools.nnet.components.per_element import update_by_rows
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.nnet.config import ConfigLine

_set_rows = tensor.element("_1 = _2")


class _ConstantOutput(UpdatableComponent):
    """Base class of components that output the same row, `output` (output_dim,), for each row."""

    KEYS = "output-dim output-mean=0 output-stddev=0"
    OWN_INFO = "output_dim is_updatable use_natural_gradient output"

    output = Vector("<Output>", key="output")
    is_updatable = Flag("<IsUpdatable>", "is-updatable", True)
    use_natural_gradient = Flag("<UseNaturalGradient>", "use-natural-gradient", True)
    preconditioner = Preconditioner(Side.ROWS, freezes=False)

    @property
    def output_dim(self) -> int:
        return int(self.output.shape[0])

    def init_from_config(self, line: ConfigLine) -> None:
        """Draw `output` at random with the line's output-mean and output-stddev."""
        dim = get_positive(line, "output-dim")
        mean, stddev = line.get_float("output-mean", 0.0), line.get_float("output-stddev", 0.0)
        self.output = random_normal((dim,), stddev, mean)

    def info(self) -> str:
        """The line that nnet3-info shows, in which the type name is repeated as in Kaldi."""
        return f"{super().info()}, {self.type_name}, {self.info_of(self.OWN_INFO)}"

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        _set_rows(out_value, self.output)

    def backprop_input(self, args: BackpropArgs) -> None:
        """Do nothing: the output does not depend on the input."""

    def update(self, args: BackpropArgs) -> None:
        if self.is_updatable:
            update_by_rows(self, self.output, args.out_deriv, self.preconditioner)

    # If not updatable, the output is no parameter and must survive averaging of models.

    def scale(self, scale: float) -> None:
        if self.is_updatable:
            super().scale(scale)

    def add(self, alpha: float, other: Component) -> None:
        if self.is_updatable:
            super().add(alpha, other)


@register
class ConstantComponent(InputlessComponent, _ConstantOutput):
    """Outputs the trainable row `output` for each output row; needs no input."""

    FORMULA = "y = output"

    @property
    def input_dim(self) -> int:
        # No input is read; Kaldi returns the output dimension.
        return self.output_dim

    @property
    def properties(self) -> Properties:
        return Properties.UPDATABLE if self.is_updatable else Properties(0)


@register
class ConstantFunctionComponent(_ConstantOutput):
    """Outputs the constant row `output` for each row of the input, whose values it ignores."""

    FORMULA = "y = output"
    OWN_INFO = "input_dim " + _ConstantOutput.OWN_INFO

    input_dim = Int("<InputDim>", "input-dim", positive=True)
    output = Vector("<Output>", key="output")
    is_updatable = Flag("<IsUpdatable>", "is-updatable", True)
    use_natural_gradient = Flag("<UseNaturalGradient>", "use-natural-gradient", True)

    @property
    def properties(self) -> Properties:
        flags = Properties.SIMPLE | Properties.BACKPROP_ADDS
        if self.is_updatable:
            flags |= Properties.UPDATABLE
        if self.input_dim == self.output_dim:
            flags |= Properties.PROPAGATE_IN_PLACE
        return flags
