"""Options of normalization with the statistics of a speaker or utterance."""

from __future__ import annotations

from dataclasses import dataclass

from nnet3tools.errors import OptionError
from nnet3tools.options import option


@dataclass(frozen=True)
class CmvnOptions:
    """The options of apply-cmvn that a model directory's cmvn_opts may have."""

    norm_vars: bool = option(False, "If true, normalize variances.")
    norm_means: bool = option(
        True,
        "You can set this to false to turn off mean normalization.  Note, the same can be achieved "
        "by using 'fake' CMVN stats; see the --fake option to compute_cmvn_stats.sh",
    )
    skip_dims: str = option(
        "",
        "Dimensions for which to skip normalization: colon-separated list of integers, e.g. "
        "13:14:15)",
    )

    def check(self) -> None:
        """OptionError if variances are to be normalized but not means."""
        if self.norm_vars and not self.norm_means:
            raise OptionError("You cannot normalize the variance but not the mean.")
