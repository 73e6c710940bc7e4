"""Code shared by the training programs, independent of the objective."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nnet3tools.cli.device_options import CudaAllocatorOptions, CudaDeviceOptions, DeviceOptions
from nnet3tools.cli.options import OptionGroup, option, option_group
from nnet3tools.cli.progress import Progress
from nnet3tools.errors import DataError, UserError
from nnet3tools.io import log

if TYPE_CHECKING:
    from nnet3tools.io.holders import Holder
    from nnet3tools.nnet.nnet import Nnet
    from nnet3tools.tensor.arrays import Array
    from nnet3tools.training.example import NnetExample
    from nnet3tools.training.trainer import NnetTrainer


class TrainingRunOptions(OptionGroup):
    """Options of training programs, except those of the trainer."""

    srand: int = option(0, "Seed for random number generator")
    binary: bool = option(True, "Write output in binary mode")
    device: DeviceOptions = option_group("", DeviceOptions)
    memory: CudaAllocatorOptions = option_group("", CudaAllocatorOptions)

    @property
    def loss_scaling(self) -> bool:
        """Whether derivatives must be scaled, because products are in half precision."""
        return self.device.math == "fp16"


class CudaTrainingRunOptions(TrainingRunOptions):
    """Options of training programs that accept Kaldi's CuDevice options."""

    device: CudaDeviceOptions = option_group("", CudaDeviceOptions)


def train_model(
    options: TrainingRunOptions,
    model_in: str,
    examples: str,
    model_out: str,
    write_cache: str,
    make_trainer: Callable[[Nnet, Array | None], NnetTrainer],
    holder: Holder[NnetExample] | None = None,
    adapt: Callable[[str, NnetExample], NnetExample] | None = None,
    load: Callable[[str], Nnet] | None = None,
) -> int:
    """Train a raw model on all examples and write it; returns the exit status.

    `write_cache` is the file for the trainer's computation cache, or "". `make_trainer` gets the
    model and an array on the device. `holder` reads examples other than frame examples. `adapt`,
    given a key and an example, returns the example to train on. `load` reads the model in place of
    read_nnet.
    """
    from nnet3tools import tensor
    from nnet3tools.io.files import prove_output
    from nnet3tools.nnet.device import move_nnet
    from nnet3tools.nnet.finite import check_nnet_finite
    from nnet3tools.nnet.model_file import read_nnet, write_nnet
    from nnet3tools.training.example import EXAMPLE, for_each_of_kind

    for name in (model_out, write_cache):
        if name:
            prove_output(name)
    tensor.random.seed(options.srand)
    device = options.device.choose()
    options.memory.apply(device)
    nnet = (load or read_nnet)(model_in)
    check_nnet_finite(nnet, model_in)
    trainer = make_trainer(nnet, device)
    with Progress("minibatches") as progress:

        def train(key: str, example: NnetExample) -> None:
            trainer.train(example)
            progress.step()

        for_each_of_kind(holder or EXAMPLE, examples, train, trainer.ahead, adapt)
    trainer.require_data(examples)
    ok = trainer.print_total_stats()
    move_nnet(nnet)  # back from the GPU
    trainer.require_finite()
    write_nnet(nnet, model_out, options.binary)
    log.log(f"Wrote model to {model_out}")
    try:
        trainer.finish()
    except UserError as error:
        # As in Kaldi, the model is written first, because it is the result of the work.
        message = f"the model was written to {model_out}, its computation cache was not: {error}"
        raise DataError(message) from None
    return 0 if ok else 1
