"""LinearComponent: y = W x, with natural gradient.

Formulas and file fields: Kaldi's LinearComponent (nnet-simple-component.cc).
"""

from __future__ import annotations

import math

from nnet3tools import tensor
from nnet3tools.nnet.components.array_fields import Matrix
from nnet3tools.nnet.components.base import Array, BackpropArgs, Indexes, Memo, Properties
from nnet3tools.nnet.components.common import (
    check_dims_of_matrix,
    get_positive,
    matrix_of_config,
    random_normal,
)
from nnet3tools.nnet.components.fields import Flag, Int
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.two_sided import (
    ALPHA,
    NUM_SAMPLES_HISTORY,
    UPDATE_PERIOD,
    TwoSidedNaturalGradient,
)
from nnet3tools.nnet.components.updatable import ORTHONORMAL_CONSTRAINT, UpdatableComponent
from nnet3tools.nnet.config import ConfigLine


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
