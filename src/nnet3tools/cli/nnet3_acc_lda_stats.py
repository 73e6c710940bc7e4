"""nnet3-acc-lda-stats: LDA statistics of a network's output on examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import DataError, OptionError
from nnet3tools.io import log

if TYPE_CHECKING:
    from nnet3tools.training.lda_accumulation import LdaAccumulator

USAGE = """Accumulate statistics in the same format as acc-lda (i.e. stats for estimation of LDA and
similar types of transform), starting from nnet training examples.  This program puts the features
through the network, and the network output will be the features; the supervision in the training
examples is used for the class labels.  Used in obtaining feature transforms that help nnet
training work better.

Usage:  nnet3-acc-lda-stats [options] <raw-nnet-in> <training-examples-in> <lda-stats-out>
e.g.:
nnet3-acc-lda-stats 0.raw ark:1.egs 1.acc
See also: nnet-get-feature-transform
"""


class Options(OptionGroup):
    binary: bool = option(True, "Write output in binary mode")
    rand_prune: float = option(0.0, "Randomized pruning threshold for posteriors")


@program("nnet3-acc-lda-stats", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.training.lda_accumulation import accumulate_examples

    write_stats(options, args, lambda accumulator: accumulate_examples(accumulator, args[1]))


def write_stats(
    options: Options, args: list[str], accumulate_all: Callable[[LdaAccumulator], int]
) -> None:
    """Accumulate with `accumulate_all`, which returns the number of examples; write the statistics.

    `args` are the network, the examples and the output file.
    """
    from nnet3tools.io.files import prove_output
    from nnet3tools.nnet.model_file import read_nnet
    from nnet3tools.training.lda_accumulation import LdaAccumulator

    nnet_in, examples_in, stats_out = args
    if options.rand_prune < 0.0:
        raise OptionError(f"--rand-prune={options.rand_prune:g} is negative")
    prove_output(stats_out)
    accumulator = LdaAccumulator(read_nnet(nnet_in), options.rand_prune)
    log.log(f"Processed {accumulate_all(accumulator)} examples.")
    stats = accumulator.stats
    if stats is None or stats.total == 0.0:
        raise DataError(f"{examples_in}: accumulated no statistics")
    stats.save(stats_out, options.binary)
    log.log(f"Accumulated stats, soft frame count = {stats.total:g}.  Wrote to {stats_out}")
