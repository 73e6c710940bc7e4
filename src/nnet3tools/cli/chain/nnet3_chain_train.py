"""nnet3-chain-train: training by the LF-MMI objective."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nnet3tools.chain.options import ChainTrainingOptions
from nnet3tools.cli.cuda_options import CudaDeviceOptions
from nnet3tools.cli.options import option, option_group, program
from nnet3tools.cli.train_model import TrainingRunOptions, train_model
from nnet3tools.training.trainer import NnetTrainerOptions

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet
    from nnet3tools.tensor.arrays import Array
    from nnet3tools.training.trainer import NnetTrainer

USAGE = """Train nnet3+chain neural network parameters with backprop and stochastic
gradient descent.  Minibatches are to be created by nnet3-chain-merge-egs in
the input pipeline.

Usage:  nnet3-chain-train [options] <raw-nnet-in> <denominator-fst-in> <chain-training-examples-in> <raw-nnet-out>

e.g.:
nnet3-chain-train 1.raw den.fst 'ark:nnet3-chain-merge-egs ark:1.cegs ark:-|' 2.raw
"""  # noqa: E501


@dataclass(frozen=True)
class Options:
    """Options of nnet3-chain-train."""

    run: TrainingRunOptions = option_group("", TrainingRunOptions)
    cuda: CudaDeviceOptions = option_group("", CudaDeviceOptions)
    trainer: NnetTrainerOptions = option_group("", NnetTrainerOptions)
    chain: ChainTrainingOptions = option_group("", ChainTrainingOptions)
    apply_deriv_weights: bool = option(
        True, "If true, apply the per-frame derivative weights stored with the example"
    )


@program("nnet3-chain-train", USAGE, Options, num_args=4)
def main(options: Options, args: list[str]) -> int:
    """Train a model on all examples and write it."""
    from nnet3tools.chain.minibatch import CHAIN_MINIBATCH

    model_in, den_fst, examples, model_out = args
    options.chain.check()
    run = replace(options.run, gpu_math=options.cuda.math(options.run.gpu_math))

    def make_trainer(nnet: Nnet, device: Array | None) -> NnetTrainer:
        from nnet3tools.chain.output_objective import ChainOutputObjective, den_graph_of
        from nnet3tools.training.trainer import NnetTrainer

        graph = den_graph_of(den_fst, nnet, model_in)
        objective = ChainOutputObjective(options.chain, graph, options.apply_deriv_weights)
        return NnetTrainer(options.trainer, nnet, device, run.loss_scaling, objective)

    cache = options.trainer.write_cache
    return train_model(run, model_in, examples, model_out, cache, make_trainer, CHAIN_MINIBATCH)
