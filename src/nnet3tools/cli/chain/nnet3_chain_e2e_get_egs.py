"""nnet3-chain-e2e-get-egs: end-to-end chain examples, one an utterance."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from nnet3tools.cli.example_generation import open_ivectors
from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.errors import EmptyError, NotFiniteError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np
from nnet3tools.training.example import NnetIo
from nnet3tools.training.generation import InputOptions
from nnet3tools.training.splitting import ExampleGenerationOptions

USAGE = """Get frame-by-frame examples of data for nnet3+chain end2end neural network
training.  Note: if <normalization-fst> is not supplied the egs will not be
ready for training; in that case they should later be processed
with nnet3-chain-normalize-egs

Usage:  nnet3-chain-e2e-get-egs [options] [<normalization-fst>] <features-rspecifier> \
<fst-rspecifier> <trans-model> <egs-wspecifier>

e.g.:
nnet3-chain-e2e-get-egs --num-frames=30,60,90 --frame-subsampling-factor=3 \\
   dir/normalization.fst "$feats" ark:fsts.ark dir/0.trans_mdl ark:cegs.1.ark
"""


class Options(OptionGroup):
    inputs: InputOptions = option_group("", InputOptions)
    srand: int = option(0, "Seed for random number generator ")
    chunks: ExampleGenerationOptions = option_group("", ExampleGenerationOptions)


@program("nnet3-chain-e2e-get-egs", USAGE, Options, num_args=(4, 5))
def main(options: Options, args: list[str]) -> None:
    from nnet3tools import draws
    from nnet3tools.chain.e2e import ENCODED_GRAPHS, E2eExampleMaker
    from nnet3tools.chain.example_format import ENCODED_CHAIN_EXAMPLES
    from nnet3tools.chain.normalization import load_normalizer
    from nnet3tools.errors import naming
    from nnet3tools.io.table import SequentialTableReader, TableWriter
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

    draws.seed(options.srand)
    *normalization, feature_rspecifier, fst_rspecifier, model, wspecifier = args
    lengths = options.chunks.chunk_sizes()
    maker = E2eExampleMaker(
        options.chunks,
        TransitionModel.load(model),
        load_normalizer(normalization[0]) if normalization else None,
        options.inputs.compress,
        lengths,
        fst_rspecifier,
    )
    num_missing = 0
    with ExitStack() as stack:
        writer = stack.enter_context(TableWriter(wspecifier, ENCODED_CHAIN_EXAMPLES))
        inputs = _Inputs(feature_rspecifier, options.inputs, stack)
        blocks = maker.blocks(writer.write)
        for key, graph in stack.enter_context(
            SequentialTableReader(fst_rspecifier, ENCODED_GRAPHS)
        ):
            with naming(f"{fst_rspecifier}: key '{key}'"):
                found = inputs.find(key)
            if found is None:
                num_missing += 1
            else:
                maker.add(key, graph, *found, blocks)
        blocks.finish()
        if num_errors := num_missing + blocks.num_errors:
            log.warning(f"{num_errors} utterances had errors and could not be processed.")
        if not blocks.num_written:
            raise EmptyError(f"{fst_rspecifier}: no examples could be made of it")


class _Inputs:
    """The random-access tables of features and i-vectors, by utterance."""

    def __init__(self, rspecifier: str, options: InputOptions, stack: ExitStack) -> None:
        from nnet3tools.io.holders import MATRIX
        from nnet3tools.io.table import RandomAccessTableReader

        self._features = stack.enter_context(RandomAccessTableReader(rspecifier, MATRIX))
        self._ivectors = open_ivectors(options, stack)

    def find(self, utterance: str) -> tuple[np.ndarray, Callable[[int], NnetIo] | None] | None:
        """(features, function from a chunk's first frame to an i-vector); None if one is absent.

        The function is None if no i-vectors are used. A warning tells what is absent.
        """
        from nnet3tools.io.general_matrix import check_finite
        from nnet3tools.training.generation import ivector_drawer

        if (features := self._features.get(utterance)) is None:
            log.warning(f"No features for utterance {utterance}")
            return None
        ivectors = None
        if self._ivectors is not None:
            if (ivectors := self._ivectors.find(utterance, len(features))) is None:
                return None
        try:
            check_finite(f"features of utterance '{utterance}'", features)
        except NotFiniteError as error:
            log.skipped(error)
            return None
        return features, ivector_drawer(self._ivectors, ivectors, len(features))
