"""nnet3-discriminative-get-egs: examples of features, lattices and alignments."""

from __future__ import annotations

from contextlib import ExitStack

from nnet3tools.cli.example_generation import open_ivectors
from nnet3tools.cli.options import OptionGroup, option_group, program
from nnet3tools.discriminative.splitting import SplitOptions
from nnet3tools.discriminative.supervision import DiscriminativeSupervision
from nnet3tools.io import log
from nnet3tools.training.generation import InputOptions
from nnet3tools.training.splitting import ExampleGenerationOptions

USAGE = """Get frame-by-frame examples of data for nnet3+sequence neural network
training.  This involves breaking up utterances into pieces of sizes
determined by the --num-frames option.

Usage:  nnet3-discriminative-get-egs [options] <model> <features-rspecifier> <denominator-lattice-rspecifier> <numerator-alignment-rspecifier> <egs-wspecifier>

e.g.:
nnet3-discriminative-get-egs --left-context=25 --right-context=9 --num-frames=150,100,90 \\
  final.mdl "$feats" "ark,s,cs:gunzip -c lat.1.gz |" scp:ali.scp ark:degs.1.ark
"""  # noqa: E501


class Options(OptionGroup):
    inputs: InputOptions = option_group("", InputOptions)
    chunks: ExampleGenerationOptions = option_group("", ExampleGenerationOptions)
    split: SplitOptions = option_group("", SplitOptions)


@program("nnet3-discriminative-get-egs", USAGE, Options, num_args=5)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.discriminative.example import DISCRIMINATIVE_EXAMPLE
    from nnet3tools.discriminative.generation import (
        DiscriminativeExampleMaker,
        make_discriminative_examples,
    )
    from nnet3tools.discriminative.supervision import DiscriminativeSupervision
    from nnet3tools.fst.lattice_files import LATTICE
    from nnet3tools.io.holders import GENERAL_MATRIX, INT32_VECTOR
    from nnet3tools.io.table import RandomAccessTableReader, SequentialTableReader, TableWriter
    from nnet3tools.nnet.hmm.transition_model import TransitionModel
    from nnet3tools.training.splitting import UtteranceSplitter

    model, feature_rspecifier, lattice_rspecifier, alignment_rspecifier, wspecifier = args
    options.split.check()
    splitter = UtteranceSplitter(options.chunks)
    with ExitStack() as stack:
        maker = DiscriminativeExampleMaker(
            splitter,
            options.split,
            TransitionModel.load(model),
            options.inputs.compress,
            open_ivectors(options.inputs, stack),
        )
        lattices = stack.enter_context(RandomAccessTableReader(lattice_rspecifier, LATTICE))
        alignments = stack.enter_context(
            RandomAccessTableReader(alignment_rspecifier, INT32_VECTOR)
        )
        writer = stack.enter_context(TableWriter(wspecifier, DISCRIMINATIVE_EXAMPLE))
        features = stack.enter_context(SequentialTableReader(feature_rspecifier, GENERAL_MATRIX))

        def find(utterance: str) -> DiscriminativeSupervision | None:
            if (lattice := lattices.get(utterance)) is None:
                log.warning(f"No denominator lattice for key {utterance}")
                return None
            if (alignment := alignments.get(utterance)) is None:
                log.warning(f"No numerator alignment for key {utterance}")
                return None
            return DiscriminativeSupervision.of(alignment, lattice, 1.0)

        make_discriminative_examples(features, find, maker, writer.write)
        splitter.print_stats()
        splitter.check_any(feature_rspecifier)
