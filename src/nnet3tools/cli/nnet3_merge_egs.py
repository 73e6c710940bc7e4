"""nnet3-merge-egs: examples to minibatches."""

from __future__ import annotations

from nnet3tools.cli.options import program
from nnet3tools.errors import EmptyError
from nnet3tools.training.merging import ExampleMergingOptions

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
    from nnet3tools.io.table import TableWriter
    from nnet3tools.training.example import EXAMPLE, for_each_example
    from nnet3tools.training.merging import ExampleMerger

    options.rules()
    with TableWriter(args[1], EXAMPLE) as writer:
        merger = ExampleMerger(options, writer.write)
        count = for_each_example(args[0], lambda key, example: merger.accept(example))
        merger.finish()
        if merger.num_written == 0:
            raise EmptyError(
                f"{args[0]}: no minibatch can be made of its {count} examples "
                f"(--minibatch-size={options.minibatch_size})"
            )
