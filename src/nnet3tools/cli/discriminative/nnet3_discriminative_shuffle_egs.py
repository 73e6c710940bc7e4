"""nnet3-discriminative-shuffle-egs: discriminative examples in random order."""

from __future__ import annotations

from nnet3tools.cli.egs_tables import ShuffleOptions, shuffle_table
from nnet3tools.cli.options import program

USAGE = """Copy nnet3 discriminative training examples from the input to output,
while randomly shuffling the order.  This program will keep all of the examples
in memory at once, unless you use the --buffer-size option

Usage:  nnet3-discriminative-shuffle-egs [options] <egs-rspecifier> <egs-wspecifier>

e.g.:
nnet3-discriminative-shuffle-egs --srand=1 ark:train.egs ark:shuffled.egs
"""


@program("nnet3-discriminative-shuffle-egs", USAGE, ShuffleOptions, num_args=2)
def main(options: ShuffleOptions, args: list[str]) -> None:
    """Shuffle a table."""
    from nnet3tools.discriminative.example import DISCRIMINATIVE_EXAMPLE

    shuffle_table(args, options, DISCRIMINATIVE_EXAMPLE)
