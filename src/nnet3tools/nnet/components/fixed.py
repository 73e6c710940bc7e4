"""Components with constants that training does not change, or whose output ignores the input.

File fields: Kaldi's FixedAffineComponent, FixedScaleComponent, FixedBiasComponent and
ConstantFunctionComponent (nnet-simple-component.cc), ConstantComponent (nnet-general-component.cc).
"""

from __future__ import annotations

import numpy as np

from nnet3tools import tensor
from nnet3tools.nnet.components.affine import affine_propagate, split_affine
from nnet3tools.nnet.components.array_fields import Matrix, Preconditioner, Side, Vector
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    InputlessComponent,
    Memo,
    Properties,
)
from nnet3tools.nnet.components.common import (
    bias_problem,
    get_positive,
    matrix_of_config,
    random_normal,
)
from nnet3tools.nnet.components.fields import Flag, Int
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.scale_offset import update_by_rows
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.nnet.config import ConfigLine

_multiply = tensor.element("_1 = _2 * _3")
_plus = tensor.element("_1 = _2 + _3")


@register
class FixedAffineComponent(Component):
    """The affine map y = W x + b with constant parameters.

    `linear_params` (output_dim, input_dim) is W, `bias_params` (output_dim,) is b.
    """

    FORMULA = "y = W x + b"
    KEYS = "[matrix] [input-dim] [output-dim]"
    PROPERTIES = Properties.BACKPROP_ADDS
    INFO = Component.INFO + " linear_params bias_params"

    linear_params = Matrix("<LinearParams>", key="linear-params", trainable=False)
    bias_params = Vector("<BiasParams>", key="bias", trainable=False)

    @property
    def input_dim(self) -> int:
        return int(self.linear_params.shape[1])

    @property
    def output_dim(self) -> int:
        return int(self.linear_params.shape[0])

    def problem(self) -> str | None:
        return bias_problem(self.linear_params, self.bias_params)

    def init_from_config(self, line: ConfigLine) -> None:
        """Read constants from matrix= (last column: bias), or draw them at random for tests."""
        if "matrix" in line:
            matrix = matrix_of_config(line, min_cols=2)
        else:
            input_dim = get_positive(line, "input-dim")
            matrix = random_normal((get_positive(line, "output-dim"), input_dim + 1), 1.0)
        self.linear_params, self.bias_params = split_affine(matrix)

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Number of operations for a matrix product and a bias."""
        return rows * (2 * self.input_dim + 1) * self.output_dim

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        affine_propagate(in_value, out_value, self.linear_params, self.bias_params)

    def backprop(self, args: BackpropArgs) -> None:
        tensor.prod(args.in_deriv, args.out_deriv, self.linear_params, beta=1.0)


class _FixedVector(Component):
    """Base class of components that apply one constant vector to every row."""

    PROPERTIES = Properties.IN_PLACE
    INFO = Component.INFO + " vector"

    vector: Vector

    @property
    def dim(self) -> int:
        """Number of columns."""
        return int(self.vector.shape[0])

    def init_from_config(self, line: ConfigLine) -> None:
        """If the line names no file, set a random vector of dim=... numbers, which is for tests."""
        if self.vector.size == 0:
            self.vector = random_normal((get_positive(line, "dim"),), 1.0)


@register
class FixedScaleComponent(_FixedVector):
    """Multiplies each column by a constant: y = scales * x."""

    FORMULA = "y = scales x"
    KEYS = "[scales] [scale] [dim]"
    vector = Vector("<Scales>", config="scales", trainable=False)

    def init_from_config(self, line: ConfigLine) -> None:
        """Read the scales from a file, or make dim=... equal scales of value scale=..."""
        if "scale" in line and "scales" not in line:
            dim = get_positive(line, "dim")
            self.vector = np.full(dim, line.get_float("scale"), np.float32)
        super().init_from_config(line)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        _multiply(out_value, in_value, self.vector)

    def backprop(self, args: BackpropArgs) -> None:
        _multiply(args.in_deriv, args.out_deriv, self.vector)


@register
class FixedBiasComponent(_FixedVector):
    """Adds a constant to each column: y = x + bias."""

    FORMULA = "y = x + bias"
    KEYS = "[bias] [dim]"
    vector = Vector("<Bias>", config="bias", trainable=False)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        _plus(out_value, in_value, self.vector)

    def backprop(self, args: BackpropArgs) -> None:
        tensor.copy(args.in_deriv, args.out_deriv)


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
