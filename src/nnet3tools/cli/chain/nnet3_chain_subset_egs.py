"""nnet3-chain-subset-egs: a random subset of chain examples."""

from __future__ import annotations

from nnet3tools.cli.egs_tables import SubsetOptions, subset_table
from nnet3tools.cli.options import program

USAGE = """Creates a random subset of the input nnet3+chain examples, of a specified size.
Uses no more memory than the size of the subset.

Usage:  nnet3-chain-subset-egs [options] <egs-rspecifier> <egs-wspecifier>

e.g.:
nnet3-chain-copy-egs [args] ark:egs.1.ark ark:- | nnet3-chain-subset-egs --n=1000 ark:- \\
   ark:subset.cegs
"""


@program("nnet3-chain-subset-egs", USAGE, SubsetOptions, num_args=2)
def main(options: SubsetOptions, args: list[str]) -> None:
    """Draw and write the subset."""
    from nnet3tools.chain.example_bytes import CHAIN_BYTES

    subset_table(args, options, CHAIN_BYTES, "nnet3+chain")
