"""Linear and affine components, y = W x (+ b), trained by gradient descent or natural gradient.

Formulas and file fields: Kaldi's LinearComponent, AffineComponent and
NaturalGradientAffineComponent (nnet-simple-component.cc).
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from nnet3tools import tensor
from nnet3tools.nnet.components.array_fields import Matrix, Vector
from nnet3tools.nnet.components.base import Array, BackpropArgs, Indexes, Memo, Properties
from nnet3tools.nnet.components.common import (
    bias_problem,
    check_dims_of_matrix,
    get_positive,
    matrix_of_config,
    random_normal,
)
from nnet3tools.nnet.components.fields import Flag, Int, Obsolete
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.two_sided import (
    ALPHA,
    NUM_SAMPLES_HISTORY,
    UPDATE_PERIOD,
    TwoSidedNaturalGradient,
)
from nnet3tools.nnet.components.updatable import (
    LATE_IS_GRADIENT,
    ORTHONORMAL_CONSTRAINT,
    UpdatableComponent,
)
from nnet3tools.nnet.config import ConfigLine

_set_rows = tensor.element("_1 = _2")


def split_affine(matrix: Array) -> tuple[Array, Array]:
    """Split the matrix [W b], as in Kaldi's matrix= files, into W and b."""
    return np.ascontiguousarray(matrix[:, :-1]), np.ascontiguousarray(matrix[:, -1])


def affine_propagate(in_value: Array, out_value: Array, linear: Array, bias: Array) -> None:
    """Set `out_value` to in_value @ linear.T + bias."""
    _set_rows(out_value, bias)
    tensor.prod(out_value, in_value, linear, trans_b=True, beta=1.0)


@register
class AffineComponent(UpdatableComponent):
    """The affine map y = W x + b with trainable parameters.

    `linear_params` (output_dim, input_dim) is W, `bias_params` (output_dim,) is b. Subclasses set
    `allows_bias_mean` if config lines may have bias-mean=.
    """

    FORMULA = "y = W x + b"
    KEYS = "input-dim output-dim [matrix] param-stddev=1/sqrt(input-dim) bias-stddev=1"
    PROPERTIES = Properties.BACKPROP_NEEDS_INPUT | Properties.BACKPROP_ADDS
    INFO = UpdatableComponent.INFO + " orthonormal_constraint linear_params bias_params"
    allows_bias_mean: ClassVar[bool] = False

    linear_params = Matrix("<LinearParams>", key="linear-params", norms=True)
    bias_params = Vector("<BiasParams>", key="bias")
    late_is_gradient = LATE_IS_GRADIENT
    orthonormal_constraint = ORTHONORMAL_CONSTRAINT

    @property
    def input_matrix(self) -> Array:
        return self.linear_params

    def problem(self) -> str | None:
        return bias_problem(self.linear_params, self.bias_params)

    def init_from_config(self, line: ConfigLine) -> None:
        """Read parameters from matrix= (last column: bias), or draw them at random."""
        if "matrix" in line:
            self.linear_params, self.bias_params = split_affine(matrix_of_config(line, min_cols=2))
            check_dims_of_matrix(line, self.input_dim, self.output_dim)
            return
        input_dim, output_dim = get_positive(line, "input-dim"), get_positive(line, "output-dim")
        param_stddev = line.get_float("param-stddev", 1.0 / math.sqrt(input_dim))
        bias_stddev = line.get_float("bias-stddev", 1.0)
        bias_mean = line.get_float("bias-mean", 0.0) if self.allows_bias_mean else 0.0
        if param_stddev < 0.0 or (self.allows_bias_mean and bias_stddev < 0.0):
            raise line.error("param-stddev and bias-stddev must not be negative")
        self.linear_params = random_normal((output_dim, input_dim), param_stddev)
        self.bias_params = random_normal((output_dim,), bias_stddev, bias_mean)

    # -- running

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        affine_propagate(in_value, out_value, self.linear_params, self.bias_params)

    def backprop_input(self, args: BackpropArgs) -> None:
        tensor.prod(args.in_deriv, args.out_deriv, self.linear_params, beta=1.0)

    def update(self, args: BackpropArgs) -> None:
        """Update W and b, without preconditioning."""
        parts = [args.in_value]
        self.add_affine_gradient(self.linear_params, self.bias_params, parts, args.out_deriv)


@register
class NaturalGradientAffineComponent(AffineComponent, TwoSidedNaturalGradient):
    """An affine component trained with natural gradient on the input and output sides."""

    KEYS = AffineComponent.KEYS + " bias-mean=0"
    INFO = AffineComponent.INFO + " rank_in rank_out num_samples_history update_period alpha"
    CLOSING_TOKENS = ("</{}>", "<{}>")
    allows_bias_mean = True

    rank_in = Int("<RankIn>", "rank-in", 20, of="preconditioner_in.rank")
    rank_out = Int("<RankOut>", "rank-out", 80, of="preconditioner_out.rank")
    orthonormal_constraint = ORTHONORMAL_CONSTRAINT
    update_period = UPDATE_PERIOD
    num_samples_history = NUM_SAMPLES_HISTORY
    alpha = ALPHA
    max_change_per_sample = Obsolete("<MaxChangePerSample>", "read_float")
    late_is_gradient = LATE_IS_GRADIENT
    update_count = Obsolete("<UpdateCount>")
    active_scaling_count = Obsolete("<ActiveScalingCount>")
    max_change_scale_stats = Obsolete("<MaxChangeScaleStats>")

    def init_from_config(self, line: ConfigLine) -> None:
        super().init_from_config(line)
        self.set_default_ranks(line, self.input_dim, self.output_dim)

    def update(self, args: BackpropArgs) -> None:
        """Update W and b with natural gradient."""
        self.update_affine(self.linear_params, self.bias_params, [args.in_value], args.out_deriv)


@register
class LinearComponent(TwoSidedNaturalGradient):
    """The linear map y = W x with trainable W, which is `params` (output_dim, input_dim).

    The result is added to the output matrix.
    """

    FORMULA = "y = W x"
    KEYS = "input-dim output-dim [matrix] param-stddev=1/sqrt(input-dim)"
    PROPERTIES = (
        Properties.BACKPROP_NEEDS_INPUT | Properties.PROPAGATE_ADDS | Properties.BACKPROP_ADDS
    )
    INFO = (
        UpdatableComponent.INFO + " params orthonormal_constraint use_natural_gradient "
        "rank_in rank_out num_samples_history update_period alpha"
    )

    params = Matrix("<Params>", key="params", norms=True)
    orthonormal_constraint = ORTHONORMAL_CONSTRAINT
    use_natural_gradient = Flag("<UseNaturalGradient>", "use-natural-gradient", True)
    """Stored in files, but ignored by the update, as in Kaldi."""
    rank_in = Int("<RankInOut>", "rank-in", 40, of="preconditioner_in.rank")
    rank_out = Int("", "rank-out", 80, of="preconditioner_out.rank")
    alpha = ALPHA
    num_samples_history = NUM_SAMPLES_HISTORY
    update_period = UPDATE_PERIOD

    @property
    def input_matrix(self) -> Array:
        return self.params

    def init_from_config(self, line: ConfigLine) -> None:
        """Read parameters from matrix=, or draw them for input-dim and output-dim."""
        if "matrix" in line:
            self.params = matrix_of_config(line)
            check_dims_of_matrix(line, self.input_dim, self.output_dim)
        else:
            input_dim = get_positive(line, "input-dim")
            output_dim = get_positive(line, "output-dim")
            param_stddev = line.get_float("param-stddev", 1.0 / math.sqrt(input_dim))
            if param_stddev < 0.0:
                raise line.error("param-stddev must not be negative")
            self.params = random_normal((output_dim, input_dim), param_stddev)
        self.set_default_ranks(line, self.input_dim, self.output_dim)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        tensor.prod(out_value, in_value, self.params, trans_b=True, beta=1.0)

    def backprop_input(self, args: BackpropArgs) -> None:
        tensor.prod(args.in_deriv, args.out_deriv, self.params, beta=1.0)

    def update(self, args: BackpropArgs) -> None:
        self.update_affine(self.params, None, [args.in_value], args.out_deriv)
