"""compute-cmvn-stats: computes statistics of the means and variances of features."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import EmptyError, OptionError, naming
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nnet3tools.io.table import RandomAccessTableReader

USAGE = """Compute cepstral mean and variance normalization statistics
If wspecifier provided: per-utterance by default, or per-speaker if
spk2utt option provided; if wxfilename: global
Usage: compute-cmvn-stats  [options] <feats-rspecifier> (<stats-wspecifier>|<stats-wxfilename>)
e.g.: compute-cmvn-stats --spk2utt=ark:data/train/spk2utt scp:data/train/feats.scp \
ark,scp:/foo/bar/cmvn.ark,data/train/cmvn.scp
See also: apply-cmvn, modify-cmvn-stats
"""


class Options(OptionGroup):
    spk2utt: str = option("", "rspecifier for speaker to utterance-list map")
    binary: bool = option(True, "write in binary mode (applies only to global CMN/CVN)")
    weights: str = option(
        "", "rspecifier for a vector of floats for each utterance, that's a per-frame weight."
    )


@program("compute-cmvn-stats", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.tables import is_table, write_object
    from nnet3tools.io.files import prove_output
    from nnet3tools.io.holders import DOUBLE_MATRIX, MATRIX, VECTOR
    from nnet3tools.io.table import RandomAccessTableReader, SequentialTableReader, TableWriter

    source, target = args
    if options.spk2utt and not is_table(target):
        raise OptionError(
            "--spk2utt option not compatible with wxfilename as output (did you forget ark:?)"
        )
    with ExitStack() as stack:
        weights = None
        if options.weights:
            weights = stack.enter_context(RandomAccessTableReader(options.weights, VECTOR))
        totals = _Totals(source, weights)
        if options.spk2utt:
            writer = stack.enter_context(TableWriter(target, DOUBLE_MATRIX))
            for speaker, stats in _of_speakers(options.spk2utt, source, totals):
                writer.write(speaker, stats)
        elif is_table(target):
            writer = stack.enter_context(TableWriter(target, DOUBLE_MATRIX))
            for key, features in stack.enter_context(SequentialTableReader(source, MATRIX)):
                if (found := totals.add(key, features, None)) is not None:
                    writer.write(key, found)
        else:
            prove_output(target)
            whole = None
            for key, features in stack.enter_context(SequentialTableReader(source, MATRIX)):
                added = totals.add(key, features, whole)
                whole = whole if added is None else added
            if whole is None:
                raise EmptyError(f"{source}: no statistics of any features")
            write_object(target, MATRIX, whole.astype(np.float32), options.binary)
            log.log(f"Wrote global CMVN stats to {target}")
    log.log(
        f"Done accumulating CMVN stats for {totals.num_done} utterances; {totals.num_failed} had "
        "errors."
    )
    return 0 if totals.num_done else 1


class _Totals:
    """Adds the features of utterances to CMVN statistics; counts successes and failures."""

    def __init__(self, source: str, weights: RandomAccessTableReader[np.ndarray] | None) -> None:
        self._source, self._weights = source, weights
        self.num_done = self.num_failed = 0

    def add(self, key: str, features: np.ndarray, stats: np.ndarray | None) -> np.ndarray | None:
        """Add an utterance to `stats`, in place, and return them; None begins new statistics.

        Returns None, after a warning, if the utterance's weights are missing or too few or many.
        """
        from nnet3tools.features.cmvn import accumulate_cmvn

        weights = None
        if self._weights is not None:
            if (weights := self._weights.get(key)) is None:
                self.failed(f"No weights available for utterance {key}")
                return None
            if len(weights) != len(features):
                sizes = f"{len(weights)} vs. {len(features)}"
                self.failed(f"Weights for utterance {key} have wrong dimension {sizes}")
                return None
        with naming(f"{self._source}: key '{key}'"):
            stats = accumulate_cmvn(stats, features, weights)
        self.num_done += 1
        return stats

    def failed(self, message: str) -> None:
        """Log `message` as a warning and count one utterance that cannot be added."""
        log.warning(message)
        self.num_failed += 1


def _of_speakers(spk2utt: str, source: str, totals: _Totals) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (speaker, CMVN statistics) for each line of the table `spk2utt`.

    `source` is the rspecifier of features; `totals` counts utterances that succeed and fail.
    """
    from nnet3tools.io.holders import MATRIX, TOKEN_VECTOR
    from nnet3tools.io.table import RandomAccessTableReader, SequentialTableReader

    with (
        SequentialTableReader(spk2utt, TOKEN_VECTOR) as speakers,
        RandomAccessTableReader(source, MATRIX) as table,
    ):
        for speaker, utterances in speakers:
            stats = None
            for key in utterances:
                if (features := table.get(key)) is None:
                    totals.failed(f"Did not find features for utterance {key}")
                    continue
                added = totals.add(key, features, stats)
                stats = stats if added is None else added
            if stats is None:
                log.warning(f"No stats accumulated for speaker {speaker}")
            else:
                yield speaker, stats
