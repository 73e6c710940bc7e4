"""Options of the LF-MMI objective, of supervisions and of the phone language model."""

from __future__ import annotations

from nnet3tools.errors import OptionError
from nnet3tools.options import OptionGroup, option

_HIGHEST_ORDER = 100
"""The highest order of n-grams allowed; an n-gram takes 4 bytes per phone."""


class ChainTrainingOptions(OptionGroup):
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
        0.0, "Scale for the DenLWF term. See --lwf-scale and the paper. DenLWF is a variant of LWF."
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


class SupervisionOptions(OptionGroup):
    """Options of converting phone alignments and lattices to supervisions."""

    left_tolerance: int = option(
        5, "Left tolerance for shift in phone position relative to the alignment"
    )
    right_tolerance: int = option(
        5, "Right tolerance for shift in phone position relative to the alignment"
    )
    frame_subsampling_factor: int = option(
        1,
        "Used if the frame-rate for the chain model will be less than the frame-rate of the "
        "original alignment.  Applied after left-tolerance and right-tolerance are applied (so "
        "they are in terms of the original num-frames.",
    )
    weight: float = option(
        1.0, "Ignored, as in Kaldi, where supervisions always get the weight 1 at first"
    )
    lm_scale: float = option(
        0.0,
        "The scale with which the graph/lm weights from the phone lattice are included in the "
        "supervision fst.",
    )
    convert_to_pdfs: bool = option(
        True, "If true, convert transition-ids to pdf-ids + 1 in supervision FSTs."
    )

    def check(self) -> None:
        """OptionError if an option's value is out of its range."""
        factor, left, right = (
            self.frame_subsampling_factor,
            self.left_tolerance,
            self.right_tolerance,
        )
        if factor < 1:
            raise OptionError(f"invalid --frame-subsampling-factor={factor}: must be >= 1")
        if left < 0 or right < 0:
            raise OptionError(f"a tolerance of {min(left, right)} frames is negative")
        if left + right + 1 < factor:
            raise OptionError(
                f"--left-tolerance={left} and --right-tolerance={right} are too small for "
                f"--frame-subsampling-factor={factor}: a phone might get no frame"
            )
        if not 0.0 <= self.lm_scale < 1.0:
            raise OptionError(f"invalid --lm-scale={self.lm_scale:g}: must be >= 0 and < 1")


class LanguageModelOptions(OptionGroup):
    """Options of estimating a phone language model."""

    ngram_order: int = option(
        4, "n-gram order for the phone language model used for the 'denominator model'"
    )
    num_extra_lm_states: int = option(
        1000,
        "Number of LM states desired on top of the number determined by the --no-prune-ngram-order "
        "option.",
    )
    no_prune_ngram_order: int = option(
        3,
        "n-gram order below which the language model is not pruned (should probably be set the "
        "same as your --context-width for phone context in tree building, to make the graph as "
        "compact as possible)",
    )

    def check(self) -> None:
        """Raise OptionError if the n-gram orders are out of range or do not match."""
        if not 2 <= self.ngram_order <= _HIGHEST_ORDER:
            raise OptionError(
                f"invalid --ngram-order={self.ngram_order}: expected 2 to {_HIGHEST_ORDER}"
            )
        if not 1 <= self.no_prune_ngram_order <= self.ngram_order:
            raise OptionError(
                f"invalid --no-prune-ngram-order={self.no_prune_ngram_order}: expected 1 to "
                f"--ngram-order={self.ngram_order}"
            )
