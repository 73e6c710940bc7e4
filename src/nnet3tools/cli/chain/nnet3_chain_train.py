"""nnet3-chain-train: train a model with the LF-MMI objective."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.chain_training import ChainRunOptions, train_chain_model
from nnet3tools.cli.options import option_group, program
from nnet3tools.cli.train_model import CudaTrainingRunOptions

if TYPE_CHECKING:
    from nnet3tools.chain.den_graph import DenominatorGraph
    from nnet3tools.nnet.nnet import Nnet

USAGE = """Train nnet3+chain neural network parameters with backprop and stochastic
gradient descent.  Minibatches are to be created by nnet3-chain-merge-egs in
the input pipeline.

Usage:  nnet3-chain-train [options] <raw-nnet-in> <denominator-fst-in> <chain-training-examples-in> <raw-nnet-out>

e.g.:
nnet3-chain-train 1.raw den.fst 'ark:nnet3-chain-merge-egs ark:1.cegs ark:-|' 2.raw
"""  # noqa: E501


class Options(ChainRunOptions):
    run: CudaTrainingRunOptions = option_group("", CudaTrainingRunOptions)


@program("nnet3-chain-train", USAGE, Options, num_args=4)
def main(options: Options, args: list[str]) -> int:
    options.chain.check()

    def graph_of(nnet: Nnet) -> DenominatorGraph:
        from nnet3tools.chain.output_objective import den_graph_of

        return den_graph_of(args[1], nnet, args[0])

    return train_chain_model(options, args, graph_of)
