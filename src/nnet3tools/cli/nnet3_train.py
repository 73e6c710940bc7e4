"""nnet3-train: stochastic gradient descent on minibatches."""

from __future__ import annotations

from nnet3tools.cli.options import OptionGroup, option_group, program
from nnet3tools.cli.train_model import TrainingRunOptions, train_model
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions

USAGE = """Train nnet3 neural network parameters with backprop and stochastic
gradient descent.  Minibatches are to be created by nnet3-merge-egs in
the input pipeline.

Usage:  nnet3-train [options] <raw-model-in> <training-examples-in> <raw-model-out>

e.g.:
nnet3-train 1.raw 'ark:nnet3-merge-egs ark:1.egs ark:-|' 2.raw
"""


class Options(OptionGroup):
    run: TrainingRunOptions = option_group("", TrainingRunOptions)
    trainer: NnetTrainerOptions = option_group("", NnetTrainerOptions)


@program("nnet3-train", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> int:
    return train_model(
        options.run,
        args,
        options.trainer.write_cache,
        lambda nnet, device: NnetTrainer(options.trainer, nnet, device, options.run.loss_scaling),
    )
