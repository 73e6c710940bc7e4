"""nnet3-discriminative-train: training by a discriminative criterion, on lattices."""

from __future__ import annotations

from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.cli.train_model import CudaTrainingRunOptions, train_model
from nnet3tools.discriminative.options import DiscriminativeOptions
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.tensor.arrays import Array
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions

USAGE = """Train nnet3 neural network parameters with discriminative sequence objective
gradient descent.  Minibatches are to be created by nnet3-discriminative-merge-egs in
the input pipeline.

Usage:  nnet3-discriminative-train [options] <model-in> <discriminative-training-examples-in> <raw-nnet-out>

e.g.:
nnet3-discriminative-train 1.mdl 'ark:nnet3-discriminative-merge-egs ark:1.degs ark:-|' 2.raw
"""  # noqa: E501


class Options(OptionGroup):
    run: CudaTrainingRunOptions = option_group("", CudaTrainingRunOptions)
    dropout_test_mode: bool = option(
        True, "If true, set test-mode to true on any DropoutComponents and DropoutMaskComponents."
    )
    trainer: NnetTrainerOptions = option_group("", NnetTrainerOptions)
    discriminative: DiscriminativeOptions = option_group("", DiscriminativeOptions)
    apply_deriv_weights: bool = option(
        True, "If true, apply the per-frame derivative weights stored with the example."
    )


@program("nnet3-discriminative-train", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.discriminative.example import DISCRIMINATIVE_MINIBATCH
    from nnet3tools.nnet.am_nnet import AmNnet
    from nnet3tools.nnet.arithmetic import set_test_modes

    options.discriminative.check()
    models = []

    def load(rxfilename: str) -> Nnet:
        models.append(AmNnet.load(rxfilename))
        set_test_modes(models[0].nnet, batchnorm=False, dropout=options.dropout_test_mode)
        return models[0].nnet

    def make_trainer(nnet: Nnet, device: Array | None) -> NnetTrainer:
        from nnet3tools.discriminative.trainer import NnetDiscriminativeTrainer

        return NnetDiscriminativeTrainer(
            options.trainer,
            options.discriminative,
            models[0],
            nnet,
            device,
            options.run.loss_scaling,
            options.apply_deriv_weights,
        )

    cache = options.trainer.write_cache
    return train_model(options.run, args, cache, make_trainer, DISCRIMINATIVE_MINIBATCH, load=load)
