"""nnet3-get-egs-dense-targets: training examples of features and real-valued targets."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnet3tools.cli.nnet3_get_egs import open_ivectors
from nnet3tools.cli.options import option, option_group, program
from nnet3tools.io import log
from nnet3tools.training.generation import GetEgsOptions
from nnet3tools.training.splitting import ExampleGenerationOptions

if TYPE_CHECKING:
    from nnet3tools.training.generation import MatrixTargets

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


@dataclass(frozen=True)
class Options:
    """Options of nnet3-get-egs-dense-targets."""

    num_targets: int = option(
        -1, "Output dimension in egs, only used to check targets have correct dim if supplied"
    )
    common: GetEgsOptions = option_group("", GetEgsOptions)
    chunks: ExampleGenerationOptions = option_group("", ExampleGenerationOptions)


@program("nnet3-get-egs-dense-targets", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> None:
    """Cut features and target matrices into examples."""
    from nnet3tools.io.holders import GENERAL_MATRIX, MATRIX
    from nnet3tools.io.table import RandomAccessTableReader, SequentialTableReader, TableWriter
    from nnet3tools.training.example import EXAMPLE
    from nnet3tools.training.generation import MatrixTargets, make_examples
    from nnet3tools.training.splitting import UtteranceSplitter

    splitter = UtteranceSplitter(options.chunks)
    with ExitStack() as stack:
        writer = stack.enter_context(TableWriter(args[2], EXAMPLE))
        features = stack.enter_context(SequentialTableReader(args[0], GENERAL_MATRIX))
        matrices = stack.enter_context(RandomAccessTableReader(args[1], MATRIX))
        ivectors = open_ivectors(options.common, stack)

        def find(utterance: str) -> MatrixTargets | None:
            if (matrix := matrices.get(utterance)) is None:
                log.warning(f"No target matrix for key {utterance}")
                return None
            return MatrixTargets(utterance, matrix, options.num_targets)

        make_examples(features, find, splitter, options.common, ivectors, writer.write)
        splitter.print_stats()
        splitter.check_any(args[0])
