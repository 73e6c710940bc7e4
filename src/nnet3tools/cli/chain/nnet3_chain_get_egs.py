"""nnet3-chain-get-egs: chain examples of features and supervisions."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from nnet3tools.cli.example_generation import open_ivectors
from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.errors import OptionError
from nnet3tools.io import log
from nnet3tools.training.generation import InputOptions
from nnet3tools.training.splitting import ExampleGenerationOptions

if TYPE_CHECKING:
    from nnet3tools.chain.generation import ChainExampleMaker, UtteranceData
    from nnet3tools.io.general_matrix import GeneralMatrix

USAGE = """Get frame-by-frame examples of data for nnet3+chain neural network
training.  This involves breaking up utterances into pieces of a
fixed size.  Input will come from chain-get-supervision.
Note: if <normalization-fst> is not supplied the egs will not be
ready for training; in that case they should later be processed
with nnet3-chain-normalize-egs

Usage:  nnet3-chain-get-egs [options] [<normalization-fst>] <features-rspecifier> \
<chain-supervision-rspecifier> <egs-wspecifier>

e.g.:
chain-get-supervision [args] | \\
  nnet3-chain-get-egs --left-context=25 --right-context=9 --num-frames=150,100,90 \\
  dir/normalization.fst "$feats" ark,s,cs:- ark:cegs.1.ark
Note: the --frame-subsampling-factor option must be the same as given to
chain-get-supervision.
"""


class Options(OptionGroup):
    inputs: InputOptions = option_group("", InputOptions)
    srand: int = option(0, "Seed for random number generator ")
    supervision_length_tolerance: int = option(
        1,
        "Tolerance for difference in num-frames-subsampled between supervision and deriv weights, "
        "and also between supervision and input frames.",
    )
    deriv_weights_rspecifier: str = option(
        "",
        "Per-frame weights that scales a frame's gradient during backpropagation. Not specifying "
        "this is equivalent to specifying a vector of all 1s.",
    )
    normalization_fst_scale: float = option(
        1.0,
        "Scale the weights from the 'normalization' FST before applying them to the examples. "
        "(Useful for semi-supervised training)",
    )
    transition_model: str = option(
        "",
        "Filename of transition model to read; should only be supplied if you want "
        "'unconstrained' egs, and if you supplied --convert-to-pdfs=false to "
        "chain-get-supervision.",
    )
    long_key: bool = option(
        False, "If true, a long format will be used for the key, which encodes context info, etc."
    )
    chunks: ExampleGenerationOptions = option_group("", ExampleGenerationOptions)


@program("nnet3-chain-get-egs", USAGE, Options, num_args=(3, 4))
def main(options: Options, args: list[str]) -> None:
    from nnet3tools import draws
    from nnet3tools.chain.example_format import ENCODED_CHAIN_EXAMPLES
    from nnet3tools.chain.generation import make_chain_examples
    from nnet3tools.io.holders import GENERAL_MATRIX
    from nnet3tools.io.table import SequentialTableReader, TableWriter

    draws.seed(options.srand)
    *normalization, feature_rspecifier, supervision_rspecifier, wspecifier = args
    with ExitStack() as stack:
        maker = _maker(options, normalization, stack)
        source = _Source(options, supervision_rspecifier, maker, stack)
        writer = stack.enter_context(TableWriter(wspecifier, ENCODED_CHAIN_EXAMPLES))
        features = stack.enter_context(SequentialTableReader(feature_rspecifier, GENERAL_MATRIX))
        make_chain_examples(features, source.find, maker, writer.write)
        maker.splitter.print_stats()
        maker.splitter.check_any(feature_rspecifier)


def _maker(options: Options, normalization: list[str], stack: ExitStack) -> ChainExampleMaker:
    from nnet3tools.chain.generation import ChainExampleMaker
    from nnet3tools.chain.normalization import load_normalizer
    from nnet3tools.training.splitting import UtteranceSplitter

    splitter = UtteranceSplitter(options.chunks)
    normalizer = convert = None
    if options.transition_model:
        from nnet3tools.chain.unconstrained import UnconstrainedConverter
        from nnet3tools.nnet.hmm.transition_model import TransitionModel

        model = TransitionModel.load(options.transition_model)
        convert = UnconstrainedConverter(model).convert
    if normalization:
        if options.normalization_fst_scale <= 0.0:
            raise OptionError(
                f"invalid --normalization-fst-scale={options.normalization_fst_scale:g}: "
                "must be > 0"
            )
        normalizer = load_normalizer(normalization[0], options.normalization_fst_scale)
    return ChainExampleMaker(
        splitter,
        options.inputs.compress,
        options.long_key,
        options.supervision_length_tolerance,
        convert,
        normalizer,
        open_ivectors(options.inputs, stack),
    )


class _Source:
    """The tables with an utterance's supervision, i-vectors and derivative weights."""

    def __init__(
        self, options: Options, rspecifier: str, maker: ChainExampleMaker, stack: ExitStack
    ) -> None:
        from nnet3tools.chain.example_format import ENCODED_SUPERVISIONS
        from nnet3tools.io.holders import VECTOR
        from nnet3tools.io.table import RandomAccessTableReader

        self._ivectors = maker.ivectors
        self._supervisions = stack.enter_context(
            RandomAccessTableReader(rspecifier, ENCODED_SUPERVISIONS)
        )
        self._weights = None
        if name := options.deriv_weights_rspecifier:
            self._weights = stack.enter_context(RandomAccessTableReader(name, VECTOR))

    def find(self, utterance: str, features: GeneralMatrix) -> UtteranceData | None:
        """All data of an utterance with these features; None, after a warning, if incomplete."""
        from nnet3tools.chain.generation import UtteranceData

        if (supervision := self._supervisions.get(utterance)) is None:
            log.warning(f"No pdf-level posterior for key {utterance}")
            return None
        ivectors = weights = None
        if self._ivectors is not None:
            if (ivectors := self._ivectors.find(utterance, features.shape[0])) is None:
                return None
        if self._weights is not None and (weights := self._weights.get(utterance)) is None:
            log.warning(f"No deriv weights for utterance {utterance}")
            return None
        return UtteranceData(utterance, features, supervision, weights, ivectors)
