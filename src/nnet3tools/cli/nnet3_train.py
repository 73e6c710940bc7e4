"""nnet3-train: stochastic gradient descent on minibatches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnet3tools.cli.cuda_options import CudaAllocatorOptions
from nnet3tools.cli.gpu import choose_device, gpu_math_option, use_gpu_option
from nnet3tools.cli.options import option, option_group, program
from nnet3tools.cli.progress import Progress
from nnet3tools.errors import DataError, UserError
from nnet3tools.io import log
from nnet3tools.training.trainer import NnetTrainerOptions

if TYPE_CHECKING:
    from nnet3tools.training.example import NnetExample

USAGE = """Train nnet3 neural network parameters with backprop and stochastic
gradient descent.  Minibatches are to be created by nnet3-merge-egs in
the input pipeline.

Usage:  nnet3-train [options] <raw-model-in> <training-examples-in> <raw-model-out>

e.g.:
nnet3-train 1.raw 'ark:nnet3-merge-egs ark:1.egs ark:-|' 2.raw
"""


@dataclass(frozen=True)
class Options:
    """Options of nnet3-train."""

    srand: int = option(0, "Seed for random number generator")
    binary: bool = option(True, "Write output in binary mode")
    use_gpu: str = use_gpu_option("yes")
    gpu_math: str = gpu_math_option()
    memory: CudaAllocatorOptions = option_group("", CudaAllocatorOptions)
    trainer: NnetTrainerOptions = option_group("", NnetTrainerOptions)


@program("nnet3-train", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> int:
    """Train a model on all examples and write it."""
    from nnet3tools import tensor
    from nnet3tools.io.files import prove_output
    from nnet3tools.nnet.device import move_nnet
    from nnet3tools.nnet.finite import check_nnet_finite
    from nnet3tools.nnet.model_file import read_nnet, write_nnet
    from nnet3tools.training.example import for_each_example
    from nnet3tools.training.trainer import NnetTrainer

    model_in, examples, model_out = args
    for name in (model_out, options.trainer.write_cache):
        if name:
            prove_output(name)
    tensor.random.seed(options.srand)
    device = choose_device(options.use_gpu, options.gpu_math)
    options.memory.apply(device)
    nnet = read_nnet(model_in)
    check_nnet_finite(nnet, model_in)
    trainer = NnetTrainer(options.trainer, nnet, device, options.gpu_math == "fp16")
    with Progress("minibatches") as progress:

        def train(key: str, example: NnetExample) -> None:
            trainer.train(example)
            progress.step()

        for_each_example(examples, train, trainer.ahead)
    trainer.require_data(examples)
    ok = trainer.print_total_stats()
    move_nnet(nnet)  # back from the GPU
    trainer.require_finite()
    write_nnet(nnet, model_out, options.binary)
    log.log(f"Wrote model to {model_out}")
    try:
        trainer.finish()
    except UserError as error:
        # As in Kaldi the model comes first and stays: it is what the time was spent on.
        message = f"the model was written to {model_out}, its computation cache was not: {error}"
        raise DataError(message) from None
    return 0 if ok else 1
