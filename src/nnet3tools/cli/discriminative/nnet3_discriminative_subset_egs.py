"""nnet3-discriminative-subset-egs: a random subset of discriminative examples."""

from __future__ import annotations

from nnet3tools.cli.egs_tables import SubsetOptions, subset_table
from nnet3tools.cli.options import program

USAGE = """Creates a random subset of the input examples, of a specified size.
Uses no more memory than the size of the subset.

Usage:  nnet3-discriminative-subset-egs [options] <degs-rspecifier> <degs-wspecifier>

e.g.:
nnet3-discriminative-copy-egs [args] ark:degs.1.ark ark:- | nnet3-discriminative-subset-egs \\
   --n=1000 ark:- ark:subset.egs
"""


@program("nnet3-discriminative-subset-egs", USAGE, SubsetOptions, num_args=2)
def main(options: SubsetOptions, args: list[str]) -> None:
    """Draw and write the subset."""
    from nnet3tools.discriminative.example import DISCRIMINATIVE_EXAMPLE

    subset_table(args, options, DISCRIMINATIVE_EXAMPLE, "neural-network discriminative")
