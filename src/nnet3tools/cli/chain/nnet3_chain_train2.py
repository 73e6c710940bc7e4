"""nnet3-chain-train2: train a model with the LF-MMI objective on one or several languages."""

from nnet3tools.cli.chain_training import ChainRunOptions, train_chain_model
from nnet3tools.cli.options import program

USAGE = """Train nnet3+chain neural network parameters with backprop and stochastic
gradient descent, on examples of one or several languages.  Minibatches are to be
created by nnet3-chain-merge-egs (--multilingual-eg=true) in the input pipeline; those
with ?lang=NAME in their keys, and others as of the language 'default', train the
output output-NAME with the denominator FST <den-fst-dir>/NAME.den.fst.

Usage:  nnet3-chain-train2 [options] <raw-nnet-in> <den-fst-dir> <chain-training-examples-in> <raw-nnet-out>

e.g.:
nnet3-chain-train2 1.raw egs/misc 'ark:nnet3-chain-merge-egs ark:1.cegs ark:-|' 2.raw
See also: nnet3-chain-train
"""  # noqa: E501


@program("nnet3-chain-train2", USAGE, ChainRunOptions, num_args=4)
def main(options: ChainRunOptions, args: list[str]) -> int:
    from nnet3tools.chain.languages import LanguageGraphs, with_language

    options.chain.check()
    return train_chain_model(
        options, args, lambda nnet: LanguageGraphs(args[1], nnet), with_language
    )
