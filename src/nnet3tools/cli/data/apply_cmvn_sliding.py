"""apply-cmvn-sliding: normalizes features over a sliding window."""

from __future__ import annotations

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import OptionError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

USAGE = """Apply sliding-window cepstral mean (and optionally variance)
normalization per utterance.  If center == true, window is centered
on frame being normalized; otherwise it precedes it in time.
Useful for speaker-id; see also apply-cmvn-online

Usage: apply-cmvn-sliding [options] <feats-rspecifier> <feats-wspecifier>
e.g.: apply-cmvn-sliding --center=true --cmn-window=300 scp:feats.scp ark:-
"""


class Options(OptionGroup):
    cmn_window: int = option(600, "Window in frames for running average CMN computation")
    min_cmn_window: int = option(
        100,
        "Minimum CMN window used at start of decoding (adds latency only at start). Only "
        "applicable if center == false, ignored if center==true",
    )
    max_warnings: int = option(
        5, "Maximum warnings to report per utterance. 0 to disable, -1 to show all."
    )
    norm_vars: bool = option(False, "If true, normalize variance to one.")
    center: bool = option(
        False,
        "If true, use a window centered on the current frame (to the extent possible, modulo end "
        "effects). If false, window is to the left.",
    )


@program("apply-cmvn-sliding", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.features.cmvn import normalize_by_windows, windows
    from nnet3tools.io.holders import MATRIX

    if options.cmn_window < 1:
        raise OptionError(f"--cmn-window={options.cmn_window} must be at least 1")
    shortest = None if options.center else options.min_cmn_window

    def convert(key: str, features: np.ndarray) -> np.ndarray | None:
        if len(features) == 0:
            log.warning(f"Empty feature matrix for utterance {key}")
            return None
        begins, ends = windows(len(features), options.cmn_window, shortest)
        return normalize_by_windows(features, begins, ends, options.norm_vars, options.max_warnings)

    num_done, num_failed = convert_table(args[0], args[1], (MATRIX, MATRIX), convert)
    log.log(
        f"Applied sliding-window cepstral mean {'and variance ' if options.norm_vars else ''}"
        f"normalization to {num_done} utterances, {num_failed} had errors."
    )
    return 0 if num_done else 1
