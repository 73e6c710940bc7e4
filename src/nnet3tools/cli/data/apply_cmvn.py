"""apply-cmvn: normalizes features by statistics of means and variances."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from nnet3tools.cli.options import option, program
from nnet3tools.features.cmvn_options import CmvnOptions
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np
from nnet3tools.options import colon_list

USAGE = """Apply cepstral mean and (optionally) variance normalization
Per-utterance by default, or per-speaker if utt2spk option provided
Usage: apply-cmvn [options] (<cmvn-stats-rspecifier>|<cmvn-stats-rxfilename>) <feats-rspecifier> \
<feats-wspecifier>
e.g.: apply-cmvn --utt2spk=ark:data/train/utt2spk scp:data/train/cmvn.scp \
scp:data/train/feats.scp ark:-
See also: modify-cmvn-stats, matrix-sum, compute-cmvn-stats
"""


@dataclass(frozen=True)
class Options(CmvnOptions):
    utt2spk: str = option("", "rspecifier for utterance to speaker map")
    reverse: bool = option(
        False,
        "If true, apply CMVN in a reverse sense, so as to transform zero-mean, unit-variance input "
        "into data with the given mean and variance.",
    )


@program("apply-cmvn", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table, lookup_by_speaker
    from nnet3tools.features.cmvn import apply_cmvn, skip_cmvn
    from nnet3tools.io.holders import DOUBLE_MATRIX, GENERAL_MATRIX, MATRIX

    stats_in, source, target = args
    options.check()
    if not options.norm_means:
        num_done, _ = convert_table(
            source, target, (GENERAL_MATRIX, GENERAL_MATRIX), lambda key, features: features
        )
        log.log(f"Copied {num_done} utterances.")
        return 0 if num_done else 1
    skipped = colon_list(options.skip_dims, "--skip-dims option")
    with ExitStack() as stack:
        refusal = "--utt2spk option not compatible with rxfilename as input (did you forget ark:?)"
        find = lookup_by_speaker(stats_in, DOUBLE_MATRIX, options.utt2spk, stack, refusal)

        def convert(key: str, features: np.ndarray) -> np.ndarray | None:
            if (stats := find(key)) is None:
                log.warning(
                    f"No normalization statistics available for key {key}, producing no output for "
                    "this utterance"
                )
                return None
            stats = skip_cmvn(stats, skipped) if skipped else stats
            return apply_cmvn(stats, features, options.norm_vars, options.reverse)

        num_done, num_failed = convert_table(source, target, (MATRIX, MATRIX), convert)
    kind = "mean and variance" if options.norm_vars else "mean"
    log.log(
        f"Applied cepstral {kind} normalization to {num_done} utterances, errors on {num_failed}"
    )
    return 0 if num_done else 1
