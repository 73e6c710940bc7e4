"""nnet3-get-egs-dense-targets: training examples of features and real-valued targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.example_generation import ExampleOptions, write_examples
from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.io.numpy_later import np

if TYPE_CHECKING:
    from nnet3tools.training.generation import Targets

USAGE = """Get frame-by-frame examples of data for nnet3 neural network training.
This program is similar to nnet3-get-egs, but the targets here are dense matrices
instead of posteriors (sparse matrices).
This is useful when you want the targets to be continuous real-valued with the
neural network possibly trained with a quadratic objective.

Usage:  nnet3-get-egs-dense-targets --num-targets=<n> [options] <features-rspecifier> \
<targets-rspecifier> <egs-out>

e.g.:
nnet3-get-egs-dense-targets --num-targets=26 --left-context=12 --right-context=9 \\
   --num-frames=8 scp:feats.scp ark:snr.ark ark:1.egs
See also: nnet3-get-egs, nnet3-merge-egs
"""


class Options(OptionGroup):
    num_targets: int = option(
        -1, "Output dimension in egs, only used to check targets have correct dim if supplied"
    )
    examples: ExampleOptions = option_group("", ExampleOptions)


@program("nnet3-get-egs-dense-targets", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.training.generation import MatrixTargets

    def make_targets(utterance: str, matrix: np.ndarray) -> Targets:
        return MatrixTargets(utterance, matrix, options.num_targets)

    write_examples(args, options.examples, MATRIX, make_targets, "target matrix")
