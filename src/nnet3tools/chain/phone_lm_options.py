"""Options of the phone language model's estimation."""

from __future__ import annotations

from dataclasses import dataclass

from nnet3tools.errors import OptionError
from nnet3tools.options import option

_HIGHEST_ORDER = 100
"""The highest order allowed; an n-gram takes 4 bytes per phone."""


@dataclass(frozen=True)
class LanguageModelOptions:
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
        """OptionError if the n-gram orders are out of range or do not match."""
        if not 2 <= self.ngram_order <= _HIGHEST_ORDER:
            raise OptionError(
                f"invalid --ngram-order={self.ngram_order}: expected 2 to {_HIGHEST_ORDER}"
            )
        if not 1 <= self.no_prune_ngram_order <= self.ngram_order:
            raise OptionError(
                f"invalid --no-prune-ngram-order={self.no_prune_ngram_order}: expected 1 to "
                f"--ngram-order={self.ngram_order}"
            )
