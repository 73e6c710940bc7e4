"""nnet3-merge-egs: examples to minibatches."""

from __future__ import annotations

from nnet3tools.cli.egs_tables import merge_table
from nnet3tools.cli.options import program
from nnet3tools.training.minibatch_rules import ExampleMergingOptions

USAGE = """This copies nnet training examples from input to output, but while doing so it
merges many NnetExample objects into one, forming a minibatch consisting of a
single NnetExample.

Usage:  nnet3-merge-egs [options] <egs-rspecifier> <egs-wspecifier>

e.g.:
nnet3-merge-egs --minibatch-size=512 ark:1.egs ark:- | nnet3-train ...
See also: nnet3-copy-egs
"""


@program("nnet3-merge-egs", USAGE, ExampleMergingOptions, num_args=2)
def main(options: ExampleMergingOptions, args: list[str]) -> None:
    """Merge a table."""
    from nnet3tools.training.like_examples import LIKE_BLOCKS
    from nnet3tools.training.merging import MERGEABLE_FRAMES

    merge_table(args, options, LIKE_BLOCKS, MERGEABLE_FRAMES)
