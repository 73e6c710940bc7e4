"""Code shared by the programs that train with the LF-MMI objective."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nnet3tools.chain.options import ChainTrainingOptions
from nnet3tools.cli.options import OptionGroup, option, option_group
from nnet3tools.cli.train_model import TrainingRunOptions, train_model
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


def train_chain_model(
    options: ChainRunOptions,
    args: list[str],
    graph_of: Callable[[Nnet], DenominatorGraph | LanguageGraphs],
    adapt: Callable[[str, NnetExample], NnetExample] | None = None,
) -> int:
    """Train a model on all examples and write it; returns the exit status.

    `args` are the model, the location of denominator graphs, the rspecifier of examples, and the
    output model. `graph_of` reads the graphs. `adapt` is as in train_model.
    """
    from nnet3tools.chain.minibatch import CHAIN_MINIBATCH

    model_in, _, examples, model_out = args

    def make_trainer(nnet: Nnet, device: Array | None) -> NnetTrainer:
        from nnet3tools.chain.output_objective import ChainOutputObjective
        from nnet3tools.training.trainer import NnetTrainer

        graph = graph_of(nnet)
        objective = ChainOutputObjective(options.chain, graph, options.apply_deriv_weights)
        return NnetTrainer(options.trainer, nnet, device, options.run.loss_scaling, objective)

    cache = options.trainer.write_cache
    run = options.run
    return train_model(
        run, model_in, examples, model_out, cache, make_trainer, CHAIN_MINIBATCH, adapt
    )
