"""nnet3-get-egs: training examples of features and posteriors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.example_generation import ExampleOptions, write_examples
from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.errors import OptionError

if TYPE_CHECKING:
    from nnet3tools.io.posterior import Posterior
    from nnet3tools.training.generation import Targets

USAGE = """Get frame-by-frame examples of data for nnet3 neural network training.
Essentially this is a format change from features and posteriors
into a special frame-by-frame format.

Usage:  nnet3-get-egs [options] <features-rspecifier> <pdf-post-rspecifier> <egs-out>

e.g.:
nnet3-get-egs --num-pdfs=2658 --left-context=12 --right-context=9 --num-frames=8 \\
   scp:feats.scp ark:post.ark ark:1.egs
See also: nnet3-get-egs-dense-targets, nnet3-merge-egs
"""


class Options(OptionGroup):
    num_pdfs: int = option(-1, "Number of pdfs in the acoustic model")
    examples: ExampleOptions = option_group("", ExampleOptions)


@program("nnet3-get-egs", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.io.holders import POSTERIOR
    from nnet3tools.training.generation import PosteriorTargets

    if options.num_pdfs <= 0:
        raise OptionError("--num-pdfs is required, and must be positive")

    def make_targets(utterance: str, posterior: Posterior) -> Targets:
        return PosteriorTargets(utterance, posterior, options.num_pdfs)

    write_examples(args, options.examples, POSTERIOR, make_targets, "pdf-level posterior")
