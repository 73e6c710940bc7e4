"""Options of mean and variance normalization: of a speaker or utterance, or of past frames."""

from __future__ import annotations

from nnet3tools.errors import OptionError
from nnet3tools.options import OptionGroup, option


class CmvnOptions(OptionGroup):
    """Options of apply-cmvn that a model directory stores in its file cmvn_opts."""

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


class OnlineCmvnOptions(OptionGroup):
    """Options of apply-cmvn-online (Kaldi's OnlineCmvnOptions)."""

    cmn_window: int = option(
        600, "Number of frames of sliding context for cepstral mean normalization."
    )
    global_frames: int = option(
        200,
        "Number of frames of global-average cepstral mean normalization stats to use for first "
        "utterance of a speaker",
    )
    speaker_frames: int = option(
        600,
        "Number of frames of previous utterance(s) from this speaker to use in cepstral mean "
        "normalization",
    )
    norm_vars: bool = option(
        False,
        "If true, do cepstral variance normalization in addition to cepstral mean normalization ",
    )
    norm_means: bool = option(
        True,
        "If true, do mean normalization (note: you cannot normalize the variance but not the mean)",
    )
    skip_dims: str = option(
        "", "Dimensions to skip normalization of (colon-separated list of integers)"
    )

    def check(self) -> None:
        """OptionError if options contradict each other."""
        if not 0 <= self.global_frames <= self.speaker_frames <= self.cmn_window:
            raise OptionError(
                "expected --global-frames <= --speaker-frames <= --cmn-window, found "
                f"{self.global_frames}, {self.speaker_frames}, {self.cmn_window}"
            )
        if self.cmn_window < 1:
            raise OptionError(f"--cmn-window={self.cmn_window}: expected at least 1")
        if self.norm_vars and not self.norm_means:
            raise OptionError("You cannot normalize the variance but not the mean.")
