"""modify-cmvn-stats: turns normalization off for some dimensions, or converts statistics."""

from __future__ import annotations

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import DataError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np
from nnet3tools.options import colon_list

USAGE = """Copy cepstral mean/variance stats so that some dimensions have 'fake' stats
that will skip normalization
Usage: modify-cmvn-stats [options] [<fake-dims>] <in-rspecifier> <out-wspecifier>
e.g.: modify-cmvn-stats 13:14:15 ark:- ark:-
or: modify-cmvn-stats --convert-to-mean-and-var=true ark:- ark:-
See also: compute-cmvn-stats
"""


class Options(OptionGroup):
    convert_to_mean_and_var: bool = option(
        False,
        "If true, convert the stats to a matrix containing the mean and the centered variance in "
        "each dimension",
    )


@program("modify-cmvn-stats", USAGE, Options, num_args=(2, 3))
def main(options: Options, args: list[str]) -> int:
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
