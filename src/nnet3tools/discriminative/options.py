"""Options of the objectives of discriminative training."""

from __future__ import annotations

from nnet3tools.errors import OptionError
from nnet3tools.options import OptionGroup, colon_list, option

CRITERIA = ("mmi", "mpfe", "smbr")


class DiscriminativeOptions(OptionGroup):
    """Options of the discriminative objective (Kaldi's DiscriminativeOptions)."""

    criterion: str = option(
        "smbr",
        "Criterion, 'mmi'|'mpfe'|'smbr', determines the objective function to use.  Should match "
        "option used when we created the examples.",
    )
    acoustic_scale: float = option(0.1, "Weighting factor to apply to acoustic likelihoods.")
    drop_frames: bool = option(
        False, "For MMI, if true we drop frames with no overlap of num and den pdf-ids"
    )
    boost: float = option(0.0, "Boosting factor for boosted MMI (e.g. 0.1)")
    one_silence_class: bool = option(
        False,
        "If true, newer behavior which will tend to reduce insertions when using MPFE or SMBR "
        "objective",
    )
    silence_phones: str = option(
        "",
        "For MPFE or SMBR objectives, colon-separated list of integer ids of silence phones, e.g. "
        "1:2:3",
    )
    l2_regularize: float = option(
        0.0, "l2 regularization constant for 'chain' output of the neural net."
    )
    xent_regularize: float = option(
        0.0,
        "Cross-entropy regularization constant for sequence training.  If nonzero, the network is "
        "expected to have an output named 'output-xent', which should have a softmax as its final "
        "nonlinearity.",
    )
    accumulate_gradients: bool = option(
        False, "Accumulate gradients wrt nnet output for debugging discriminative training"
    )
    accumulate_output: bool = option(
        False, "Accumulate nnet output for debugging discriminative training"
    )
    num_pdfs: int = option(
        0,
        "Number of pdfs; applicable when accumulate-output or accumulate-gradients is true for "
        "discriminative training",
    )

    def check(self) -> None:
        """Raise OptionError if an option's value is out of its range."""
        if self.criterion not in CRITERIA:
            raise OptionError(
                f"invalid --criterion={self.criterion}: expected one of {', '.join(CRITERIA)}"
            )
        phones = self.silence()
        if list(phones) != sorted(set(phones)):
            raise OptionError(
                f"invalid --silence-phones={self.silence_phones}: expected rising phones"
            )

    def silence(self) -> tuple[int, ...]:
        """The silence phones; OptionError unless all are numbers."""
        return tuple(colon_list(self.silence_phones, "--silence-phones option"))
