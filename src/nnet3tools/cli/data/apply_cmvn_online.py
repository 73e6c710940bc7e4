"""apply-cmvn-online: normalizes features over a window of past frames."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.errors import naming
from nnet3tools.features.cmvn_options import OnlineCmvnOptions
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np
from nnet3tools.options import colon_list

if TYPE_CHECKING:
    from collections.abc import Iterator


USAGE = """Apply online cepstral mean (and possibly variance) computation online,
using the same code as used for online decoding in the 'new' setup in
online2/ and online2bin/.  If the --spk2utt option is used, it uses
prior utterances from the same speaker to back off to at the utterance
beginning.  See also apply-cmvn-sliding.

Usage: apply-cmvn-online [options] <global-cmvn-stats> <feature-rspecifier> <feature-wspecifier>
e.g.: apply-cmvn-online 'matrix-sum scp:data/train/cmvn.scp -|' scp:data/train/feats.scp ark:-
or: apply-cmvn-online --spk2utt=ark:data/train/spk2utt 'matrix-sum scp:data/train/cmvn.scp -|' \
scp:data/train/feats.scp ark:-
"""


class Options(OptionGroup):
    spk2utt: str = option("", "rspecifier for speaker to utterance-list map")
    cmvn: OnlineCmvnOptions = option_group("", OnlineCmvnOptions)


@program("apply-cmvn-online", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> int:
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
