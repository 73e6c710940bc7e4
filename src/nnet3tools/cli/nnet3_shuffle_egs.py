"""nnet3-shuffle-egs: examples in random order."""

from __future__ import annotations

from dataclasses import dataclass

from nnet3tools.cli.options import option, program
from nnet3tools.errors import EmptyError
from nnet3tools.io import log

USAGE = """Copy examples (typically single frames or small groups of frames) for
neural network training, from the input to output, but randomly shuffle the order.
This program will keep all of the examples in memory at once, unless you
use the --buffer-size option

Usage:  nnet3-shuffle-egs [options] <egs-rspecifier> <egs-wspecifier>

e.g.:
nnet3-shuffle-egs --srand=1 ark:train.egs ark:shuffled.egs
"""


@dataclass(frozen=True)
class Options:
    """Options of nnet3-shuffle-egs."""

    srand: int = option(0, "Seed for random number generator")
    buffer_size: int = option(
        0,
        "If >0, size of a buffer we use to do limited-memory partial randomization.  Otherwise, do "
        "full randomization.",
    )


@program("nnet3-shuffle-egs", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> None:
    """Shuffle a table."""
    from nnet3tools.io.table import SequentialTableReader, TableWriter
    from nnet3tools.training.example_bytes import EXAMPLE_BYTES
    from nnet3tools.training.orders import shuffle_in_buffer, shuffled

    num_done = 0
    with (
        TableWriter(args[1], EXAMPLE_BYTES) as writer,
        SequentialTableReader(args[0], EXAMPLE_BYTES) as examples,
    ):
        if options.buffer_size:
            order = shuffle_in_buffer(examples, options.buffer_size)
        else:
            order = iter(shuffled(examples, options.srand))
        for key, example in order:
            writer.write(key, example)
            num_done += 1
        if num_done == 0:
            raise EmptyError(f"{args[0]}: no examples to shuffle")
    how = "using a buffer (partial randomization)" if options.buffer_size else ""
    log.log(f"Shuffled order of {num_done} neural-network training examples {how}")
