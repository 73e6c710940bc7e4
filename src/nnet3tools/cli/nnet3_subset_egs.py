"""nnet3-subset-egs: a random subset of examples."""

from __future__ import annotations

from dataclasses import dataclass

from nnet3tools.cli.options import option, program
from nnet3tools.errors import EmptyError
from nnet3tools.io import log

USAGE = """Creates a random subset of the input examples, of a specified size.
Uses no more memory than the size of the subset.

Usage:  nnet3-subset-egs [options] <egs-rspecifier> <egs-wspecifier>

e.g.:
nnet3-copy-egs [args] ark:egs.1.ark ark:- | nnet3-subset-egs --n=1000 ark:- ark:subset.egs
"""


@dataclass(frozen=True)
class Options:
    """Options of nnet3-subset-egs."""

    srand: int = option(0, "Seed for random number generator")
    n: int = option(1000, "Number of examples to output")
    randomize_order: bool = option(True, "If true, randomize the order of the output")


@program("nnet3-subset-egs", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> None:
    """Draw and write the subset."""
    from nnet3tools.io.table import SequentialTableReader, TableWriter
    from nnet3tools.training.example_bytes import EXAMPLE_BYTES
    from nnet3tools.training.orders import random_subset

    with (
        TableWriter(args[1], EXAMPLE_BYTES) as writer,
        SequentialTableReader(args[0], EXAMPLE_BYTES) as examples,
    ):
        chosen, num_read = random_subset(
            examples, options.n, options.srand, options.randomize_order
        )
        if num_read == 0:
            raise EmptyError(f"{args[0]}: no examples to choose from")
        for key, example in chosen:
            writer.write(key, example)
    log.log(
        f"Selected a subset of {len(chosen)} out of {num_read} neural-network training examples "
    )
