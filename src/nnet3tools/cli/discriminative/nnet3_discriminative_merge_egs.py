"""nnet3-discriminative-merge-egs: discriminative examples to minibatches."""

from __future__ import annotations

from dataclasses import dataclass

from nnet3tools.cli.egs_tables import merge_table
from nnet3tools.cli.options import option, program
from nnet3tools.training.minibatch_rules import MINIBATCH_SIZE_HELP, ExampleMergingOptions

USAGE = """This copies nnet3 discriminative training examples from input to output, merging them
into composite examples.  The --minibatch-size option controls how many egs
are merged into a single output eg.

Usage:  nnet3-discriminative-merge-egs [options] <egs-rspecifier> <egs-wspecifier>

e.g.:
nnet3-discriminative-merge-egs --minibatch-size=128 ark:1.degs ark:- | nnet3-discriminative-train ...
See also nnet3-discriminative-copy-egs
"""  # noqa: E501


@dataclass(frozen=True)
class Options(ExampleMergingOptions):
    """Options of nnet3-discriminative-merge-egs."""

    minibatch_size: str = option("64", MINIBATCH_SIZE_HELP)


@program("nnet3-discriminative-merge-egs", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> None:
    """Merge a table."""
    from nnet3tools.discriminative.example import DISCRIMINATIVE_EXAMPLE
    from nnet3tools.discriminative.merging import MERGEABLE_DISCRIMINATIVE

    merge_table(args, options, DISCRIMINATIVE_EXAMPLE, MERGEABLE_DISCRIMINATIVE)
