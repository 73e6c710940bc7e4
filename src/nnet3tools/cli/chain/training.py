"""Programs that train with the LF-MMI objective."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nnet3tools.chain.options import ChainTrainingOptions
from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.cli.train_model import CudaTrainingRunOptions, TrainingRunOptions, train_model
from nnet3tools.training.trainer import NnetTrainerOptions

if TYPE_CHECKING:
    from nnet3tools.chain.den_graph import DenominatorGraph
    from nnet3tools.chain.languages import LanguageGraphs
    from nnet3tools.nnet.nnet import Nnet
    from nnet3tools.tensor.arrays import Array
    from nnet3tools.training.example import NnetExample
    from nnet3tools.training.trainer import NnetTrainer


class ChainRunOptions(OptionGroup):
    """Options of a program that trains with the LF-MMI objective."""

    run: TrainingRunOptions = option_group("", TrainingRunOptions)
    trainer: NnetTrainerOptions = option_group("", NnetTrainerOptions)
    chain: ChainTrainingOptions = option_group("", ChainTrainingOptions)
    apply_deriv_weights: bool = option(
        True, "If true, apply the per-frame derivative weights stored with the example"
    )


def _train(
    options: ChainRunOptions,
    args: list[str],
    graph_of: Callable[[Nnet], DenominatorGraph | LanguageGraphs],
    adapt: Callable[[str, NnetExample], NnetExample] | None = None,
) -> int:
    """Train a model on all examples and write it; returns the exit status.

    `args` are the model, the location of denominator graphs, the rspecifier of examples, and the
    output model. `graph_of` reads the graphs for a model. `adapt`, given a key and an example,
    returns the example to train on.
    """
    from nnet3tools.chain.minibatch import CHAIN_MINIBATCH

    options.chain.check()
    model_in, _, examples, model_out = args

    def make_trainer(nnet: Nnet, device: Array | None) -> NnetTrainer:
        from nnet3tools.chain.output_objective import ChainOutputObjective
        from nnet3tools.training.trainer import NnetTrainer

        graph = graph_of(nnet)
        objective = ChainOutputObjective(options.chain, graph, options.apply_deriv_weights)
        return NnetTrainer(options.trainer, nnet, device, options.run.loss_scaling, objective)

    files, cache = (model_in, examples, model_out), options.trainer.write_cache
    return train_model(options.run, files, cache, make_trainer, CHAIN_MINIBATCH, adapt)


CHAIN_TRAIN_USAGE = """Train nnet3+chain neural network parameters with backprop and stochastic
gradient descent.  Minibatches are to be created by nnet3-chain-merge-egs in
the input pipeline.

Usage:  nnet3-chain-train [options] <raw-nnet-in> <denominator-fst-in> <chain-training-examples-in> <raw-nnet-out>

e.g.:
nnet3-chain-train 1.raw den.fst 'ark:nnet3-chain-merge-egs ark:1.cegs ark:-|' 2.raw
"""  # noqa: E501


class ChainTrainOptions(ChainRunOptions):
    run: CudaTrainingRunOptions = option_group("", CudaTrainingRunOptions)


@program("nnet3-chain-train", CHAIN_TRAIN_USAGE, ChainTrainOptions, num_args=4)
def nnet3_chain_train(options: ChainTrainOptions, args: list[str]) -> int:
    from nnet3tools.chain.output_objective import den_graph_of

    return _train(options, args, lambda nnet: den_graph_of(args[1], nnet, args[0]))


CHAIN_TRAIN2_USAGE = """Train nnet3+chain neural network parameters with backprop and stochastic
gradient descent, on examples of one or several languages.  Minibatches are to be
created by nnet3-chain-merge-egs (--multilingual-eg=true) in the input pipeline; those
with ?lang=NAME in their keys, and others as of the language 'default', train the
output output-NAME with the denominator FST <den-fst-dir>/NAME.den.fst.

Usage:  nnet3-chain-train2 [options] <raw-nnet-in> <den-fst-dir> <chain-training-examples-in> <raw-nnet-out>

e.g.:
nnet3-chain-train2 1.raw egs/misc 'ark:nnet3-chain-merge-egs ark:1.cegs ark:-|' 2.raw
See also: nnet3-chain-train
"""  # noqa: E501


@program("nnet3-chain-train2", CHAIN_TRAIN2_USAGE, ChainRunOptions, num_args=4)
def nnet3_chain_train2(options: ChainRunOptions, args: list[str]) -> int:
    from nnet3tools.chain.languages import LanguageGraphs, with_language

    return _train(options, args, lambda nnet: LanguageGraphs(args[1], nnet), with_language)
