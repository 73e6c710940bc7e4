"""nnet3-chain-train2: training by the LF-MMI objective, with a denominator graph a language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnet3tools.chain.options import ChainTrainingOptions
from nnet3tools.cli.options import option, option_group, program
from nnet3tools.cli.train_model import TrainingRunOptions, train_model
from nnet3tools.training.trainer import NnetTrainerOptions

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet
    from nnet3tools.tensor.arrays import Array
    from nnet3tools.training.trainer import NnetTrainer

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


@dataclass(frozen=True)
class Options:
    """Options of nnet3-chain-train2."""

    run: TrainingRunOptions = option_group("", TrainingRunOptions)
    trainer: NnetTrainerOptions = option_group("", NnetTrainerOptions)
    chain: ChainTrainingOptions = option_group("", ChainTrainingOptions)
    apply_deriv_weights: bool = option(
        True, "If true, apply the per-frame derivative weights stored with the example"
    )


@program("nnet3-chain-train2", USAGE, Options, num_args=4)
def main(options: Options, args: list[str]) -> int:
    """Train a model on all examples and write it."""
    from nnet3tools.chain.languages import LanguageGraphs, with_language
    from nnet3tools.chain.minibatch import CHAIN_MINIBATCH

    model_in, den_fst_dir, examples, model_out = args
    options.chain.check()

    def make_trainer(nnet: Nnet, device: Array | None) -> NnetTrainer:
        from nnet3tools.chain.output_objective import ChainOutputObjective
        from nnet3tools.training.trainer import NnetTrainer

        graphs = LanguageGraphs(den_fst_dir, nnet)
        objective = ChainOutputObjective(options.chain, graphs, options.apply_deriv_weights)
        return NnetTrainer(options.trainer, nnet, device, options.run.loss_scaling, objective)

    return train_model(
        options.run,
        model_in,
        examples,
        model_out,
        options.trainer.write_cache,
        make_trainer,
        CHAIN_MINIBATCH,
        with_language,
    )
