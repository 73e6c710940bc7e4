"""nnet3-get-egs: training examples of features and posteriors."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnet3tools.cli.options import option, option_group, program
from nnet3tools.errors import OptionError
from nnet3tools.io import log
from nnet3tools.training.generation import GetEgsOptions
from nnet3tools.training.splitting import ExampleGenerationOptions

if TYPE_CHECKING:
    from nnet3tools.training.generation import IvectorSource, PosteriorTargets

USAGE = """Get frame-by-frame examples of data for nnet3 neural network training.
Essentially this is a format change from features and posteriors
into a special frame-by-frame format.

Usage:  nnet3-get-egs [options] <features-rspecifier> <pdf-post-rspecifier> <egs-out>

e.g.:
nnet3-get-egs --num-pdfs=2658 --left-context=12 --right-context=9 --num-frames=8 \\
   scp:feats.scp ark:post.ark ark:1.egs
See also: nnet3-get-egs-dense-targets, nnet3-merge-egs
"""


@dataclass(frozen=True)
class Options:
    """Options of nnet3-get-egs."""

    num_pdfs: int = option(-1, "Number of pdfs in the acoustic model")
    common: GetEgsOptions = option_group("", GetEgsOptions)
    chunks: ExampleGenerationOptions = option_group("", ExampleGenerationOptions)


def open_ivectors(options: GetEgsOptions, stack: ExitStack) -> IvectorSource | None:
    """The table of online iVectors, if there is one."""
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import RandomAccessTableReader
    from nnet3tools.training.generation import IvectorSource

    if not options.ivector_rspecifier:
        return None
    if options.online_ivector_period < 1:
        raise OptionError(
            f"--online-ivector-period={options.online_ivector_period} is not positive"
        )
    reader = RandomAccessTableReader(options.ivector_rspecifier, MATRIX)
    return IvectorSource(
        stack.enter_context(reader), options.online_ivector_period, options.length_tolerance
    )


@program("nnet3-get-egs", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> None:
    """Cut features and posteriors into examples."""
    from nnet3tools.io.holders import GENERAL_MATRIX, POSTERIOR
    from nnet3tools.io.table import RandomAccessTableReader, SequentialTableReader, TableWriter
    from nnet3tools.training.example import EXAMPLE
    from nnet3tools.training.generation import PosteriorTargets, make_examples
    from nnet3tools.training.splitting import UtteranceSplitter

    if options.num_pdfs <= 0:
        raise OptionError("--num-pdfs is required, and must be positive")
    splitter = UtteranceSplitter(options.chunks)
    with ExitStack() as stack:
        writer = stack.enter_context(TableWriter(args[2], EXAMPLE))
        features = stack.enter_context(SequentialTableReader(args[0], GENERAL_MATRIX))
        posteriors = stack.enter_context(RandomAccessTableReader(args[1], POSTERIOR))
        ivectors = open_ivectors(options.common, stack)

        def find(utterance: str) -> PosteriorTargets | None:
            if (posterior := posteriors.get(utterance)) is None:
                log.warning(f"No pdf-level posterior for key {utterance}")
                return None
            return PosteriorTargets(utterance, posterior, options.num_pdfs)

        make_examples(features, find, splitter, options.common, ivectors, writer.write)
        splitter.print_stats()
        splitter.check_any(args[0])
