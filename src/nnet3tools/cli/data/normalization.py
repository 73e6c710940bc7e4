"""Programs that normalize features by means and variances."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.errors import DataError, OptionError, naming
from nnet3tools.features.cmvn_options import CmvnOptions, OnlineCmvnOptions
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np
from nnet3tools.options import colon_list

APPLY_CMVN_USAGE = """Apply cepstral mean and (optionally) variance normalization
Per-utterance by default, or per-speaker if utt2spk option provided
Usage: apply-cmvn [options] (<cmvn-stats-rspecifier>|<cmvn-stats-rxfilename>) <feats-rspecifier> \
<feats-wspecifier>
e.g.: apply-cmvn --utt2spk=ark:data/train/utt2spk scp:data/train/cmvn.scp \
scp:data/train/feats.scp ark:-
See also: modify-cmvn-stats, matrix-sum, compute-cmvn-stats
"""


class ApplyCmvnOptions(CmvnOptions):
    utt2spk: str = option("", "rspecifier for utterance to speaker map")
    reverse: bool = option(
        False,
        "If true, apply CMVN in a reverse sense, so as to transform zero-mean, unit-variance input "
        "into data with the given mean and variance.",
    )


@program("apply-cmvn", APPLY_CMVN_USAGE, ApplyCmvnOptions, num_args=3)
def apply_cmvn(options: ApplyCmvnOptions, args: list[str]) -> int:
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


APPLY_CMVN_ONLINE_USAGE = """Apply online cepstral mean (and possibly variance) computation online,
using the same code as used for online decoding in the 'new' setup in
online2/ and online2bin/.  If the --spk2utt option is used, it uses
prior utterances from the same speaker to back off to at the utterance
beginning.  See also apply-cmvn-sliding.

Usage: apply-cmvn-online [options] <global-cmvn-stats> <feature-rspecifier> <feature-wspecifier>
e.g.: apply-cmvn-online 'matrix-sum scp:data/train/cmvn.scp -|' scp:data/train/feats.scp ark:-
or: apply-cmvn-online --spk2utt=ark:data/train/spk2utt 'matrix-sum scp:data/train/cmvn.scp -|' \
scp:data/train/feats.scp ark:-
"""


class ApplyCmvnOnlineOptions(OptionGroup):
    spk2utt: str = option("", "rspecifier for speaker to utterance-list map")
    cmvn: OnlineCmvnOptions = option_group("", OnlineCmvnOptions)


@program("apply-cmvn-online", APPLY_CMVN_ONLINE_USAGE, ApplyCmvnOnlineOptions, num_args=3)
def apply_cmvn_online(options: ApplyCmvnOnlineOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import read_object
    from nnet3tools.features.cmvn import accumulate_cmvn
    from nnet3tools.features.online_cmvn import online_cmvn
    from nnet3tools.io.holders import DOUBLE_MATRIX, MATRIX
    from nnet3tools.io.table import TableWriter

    stats_in, source, target = args
    options.cmvn.check()
    skipped = colon_list(options.cmvn.skip_dims, "--skip-dims option")
    overall = read_object(stats_in, DOUBLE_MATRIX)
    num_done = num_frames = 0
    speaker_stats: np.ndarray | None = None
    last_speaker = ""
    with TableWriter(target, MATRIX) as writer:
        for speaker, key, features in _utterances(source, options.spk2utt):
            if speaker != last_speaker or not speaker:
                last_speaker, speaker_stats = speaker, None
            with naming(f"{source}: key '{key}'"):
                output = online_cmvn(features, overall, speaker_stats, options.cmvn, skipped)
                speaker_stats = accumulate_cmvn(speaker_stats, features)
            writer.write(key, output)
            num_done += 1
            num_frames += len(features)
    log.log(f"Applied online CMVN to {num_done} files, or {num_frames} frames.")
    return 0 if num_done else 1


def _utterances(source: str, spk2utt: str) -> Iterator[tuple[str, str, np.ndarray]]:
    """Triples (speaker, key, features), in the order of spk2utt if given, else of the table.

    Without spk2utt the speaker is "".
    """
    from nnet3tools.io.holders import MATRIX, TOKEN_VECTOR
    from nnet3tools.io.table import RandomAccessTableReader, SequentialTableReader

    with ExitStack() as stack:
        if not spk2utt:
            for key, features in stack.enter_context(SequentialTableReader(source, MATRIX)):
                yield "", key, features
            return
        table = stack.enter_context(RandomAccessTableReader(source, MATRIX))
        for speaker, keys in stack.enter_context(SequentialTableReader(spk2utt, TOKEN_VECTOR)):
            for key in keys:
                if (found := table.get(key)) is None:
                    log.warning(f"No features for utterance {key}")
                else:
                    yield speaker, key, found


APPLY_CMVN_SLIDING_USAGE = """Apply sliding-window cepstral mean (and optionally variance)
normalization per utterance.  If center == true, window is centered
on frame being normalized; otherwise it precedes it in time.
Useful for speaker-id; see also apply-cmvn-online

Usage: apply-cmvn-sliding [options] <feats-rspecifier> <feats-wspecifier>
e.g.: apply-cmvn-sliding --center=true --cmn-window=300 scp:feats.scp ark:-
"""


class ApplyCmvnSlidingOptions(OptionGroup):
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


@program("apply-cmvn-sliding", APPLY_CMVN_SLIDING_USAGE, ApplyCmvnSlidingOptions, num_args=2)
def apply_cmvn_sliding(options: ApplyCmvnSlidingOptions, args: list[str]) -> int:
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


MODIFY_CMVN_STATS_USAGE = """\
Copy cepstral mean/variance stats so that some dimensions have 'fake' stats
that will skip normalization
Usage: modify-cmvn-stats [options] [<fake-dims>] <in-rspecifier> <out-wspecifier>
e.g.: modify-cmvn-stats 13:14:15 ark:- ark:-
or: modify-cmvn-stats --convert-to-mean-and-var=true ark:- ark:-
See also: compute-cmvn-stats
"""


class ModifyCmvnStatsOptions(OptionGroup):
    convert_to_mean_and_var: bool = option(
        False,
        "If true, convert the stats to a matrix containing the mean and the centered variance in "
        "each dimension",
    )


@program("modify-cmvn-stats", MODIFY_CMVN_STATS_USAGE, ModifyCmvnStatsOptions, num_args=(2, 3))
def modify_cmvn_stats(options: ModifyCmvnStatsOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.features.cmvn import mean_and_variance, skip_cmvn
    from nnet3tools.io.holders import DOUBLE_MATRIX

    *first, source, target = args
    dims = colon_list(first[0] if first else "", "first argument")

    def convert(key: str, stats: np.ndarray) -> np.ndarray | None:
        if stats.shape[0] != 2 or stats.shape[1] < 2:
            raise DataError("Expected input to be CMVN stats (should have two rows)")
        stats = skip_cmvn(stats, dims)
        if not options.convert_to_mean_and_var:
            return stats
        if stats[0, -1] <= 0.0:
            log.warning(
                f"Zero or negative count for speaker {key}, not outputting mean and variance stats."
            )
            return None
        return mean_and_variance(stats)

    num_done, _ = convert_table(source, target, (DOUBLE_MATRIX, DOUBLE_MATRIX), convert)
    log.log(f"Modified {num_done} sets of stats.")
    return 0 if num_done else 1
