"""nnet3-shuffle-egs: examples in random order."""

from __future__ import annotations

from nnet3tools.cli.egs_tables import ShuffleOptions, shuffle_table
from nnet3tools.cli.options import program

USAGE = """Copy examples (typically single frames or small groups of frames) for
neural network training, from the input to output, but randomly shuffle the order.
This program will keep all of the examples in memory at once, unless you
use the --buffer-size option

Usage:  nnet3-shuffle-egs [options] <egs-rspecifier> <egs-wspecifier>

e.g.:
nnet3-shuffle-egs --srand=1 ark:train.egs ark:shuffled.egs
"""


@program("nnet3-shuffle-egs", USAGE, ShuffleOptions, num_args=2)
def main(options: ShuffleOptions, args: list[str]) -> None:
    """Shuffle a table."""
    from nnet3tools.training.example_bytes import EXAMPLE_BYTES

    shuffle_table(args, options, EXAMPLE_BYTES)
