"""Options of the LF-MMI objective."""

from __future__ import annotations

from dataclasses import dataclass

from nnet3tools.errors import OptionError
from nnet3tools.options import option


@dataclass(frozen=True)
class ChainTrainingOptions:
    """Options of the LF-MMI objective (Kaldi's ChainTrainingOptions)."""

    l2_regularize: float = option(
        0.0,
        "l2 regularization constant for 'chain' training, applied to the output of the neural net.",
    )
    lwf_scale: float = option(
        0.0,
        "Scale for the Learning Without Forgetting (LWF) term. See https://arxiv.org/abs/"
        "2110.07055. Currently only works with unconstrained egs.",
    )
    lwf_den_scale: float = option(
        0.0,
        "Scale for the DenLWF term. See --lwf-scale and the paper. DenLWF is a variant of LWF.",
    )
    out_of_range_regularize: float = option(
        0.01,
        "Constant that controls how much we penalize the nnet output being outside the range "
        "[-30,30].  This is needed because we limit it to that range in the denominator "
        "computation (which is to avoid NaNs because it is not done in log space.",
    )
    leaky_hmm_coefficient: float = option(
        1.0e-05,
        "Coefficient that allows transitions from each HMM state to each other HMM state, to "
        "ensure gradual forgetting of context (can improve generalization).  For numerical "
        "reasons, may not be exactly zero.",
    )
    xent_regularize: float = option(
        0.0,
        "Cross-entropy regularization constant for 'chain' training.  If nonzero, the network is "
        "expected to have an output named 'output-xent', which should have a softmax as its final "
        "nonlinearity.",
    )
    numerator_graph_threads: int = option(
        1, "Accepted for compatibility; has no effect: all sequences are done together"
    )

    def check(self) -> None:
        """OptionError if an option's value is out of its range."""
        if not 0.0 < self.leaky_hmm_coefficient < 1.0:
            raise OptionError(
                f"invalid --leaky-hmm-coefficient={self.leaky_hmm_coefficient:g}: expected more "
                "than 0 and less than 1"
            )
