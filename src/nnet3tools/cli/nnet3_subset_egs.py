"""nnet3-subset-egs: a random subset of examples."""

from __future__ import annotations

from nnet3tools.cli.egs_tables import SubsetOptions, subset_table
from nnet3tools.cli.options import program

USAGE = """Creates a random subset of the input examples, of a specified size.
Uses no more memory than the size of the subset.

Usage:  nnet3-subset-egs [options] <egs-rspecifier> <egs-wspecifier>

e.g.:
nnet3-copy-egs [args] ark:egs.1.ark ark:- | nnet3-subset-egs --n=1000 ark:- ark:subset.egs
"""


@program("nnet3-subset-egs", USAGE, SubsetOptions, num_args=2)
def main(options: SubsetOptions, args: list[str]) -> None:
    """Draw and write the subset."""
    from nnet3tools.training.example_bytes import EXAMPLE_BYTES

    subset_table(args, options, EXAMPLE_BYTES, "neural-network")
