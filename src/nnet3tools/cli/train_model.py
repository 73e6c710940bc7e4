"""Code shared by the training programs, independent of the objective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nnet3tools.cli.device_options import CudaAllocatorOptions, CudaDeviceOptions, DeviceOptions
from nnet3tools.cli.options import OptionGroup, option, option_group
from nnet3tools.cli.progress import Progress
from nnet3tools.cli.ranks import RankOptions, check_gpus, joined, run_ranks
from nnet3tools.errors import DataError, UserError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log

if TYPE_CHECKING:
    from nnet3tools.io.holders import Holder
    from nnet3tools.nnet.nnet import Nnet
    from nnet3tools.tensor.arrays import Array
    from nnet3tools.training.averaging import JointTraining
    from nnet3tools.training.example import NnetExample
    from nnet3tools.training.ranks import Ranks
    from nnet3tools.training.trainer import NnetTrainer


class TrainingRunOptions(OptionGroup):
    """Options of training programs, except those of the trainer."""

    srand: int = option(0, "Seed for random number generator")
    binary: bool = option(True, "Write output in binary mode")
    device: DeviceOptions = option_group("", DeviceOptions)
    memory: CudaAllocatorOptions = option_group("", CudaAllocatorOptions)
    ranks: RankOptions = option_group("", RankOptions)

    @property
    def loss_scaling(self) -> bool:
        """Whether derivatives must be scaled, because products are in half precision."""
        return self.device.math == "fp16"


class CudaTrainingRunOptions(TrainingRunOptions):
    """Options of training programs that accept Kaldi's CuDevice options."""

    device: CudaDeviceOptions = option_group("", CudaDeviceOptions)


def train_model(
    options: TrainingRunOptions,
    files: Sequence[str],
    write_cache: str,
    make_trainer: Callable[[Nnet, Array | None], NnetTrainer],
    holder: Holder[NnetExample] | None = None,
    adapt: Callable[[str, NnetExample], NnetExample] | None = None,
    load: Callable[[str], Nnet] | None = None,
) -> int:
    """Train a raw model on all examples and write it; returns the exit status.

    `files` are the input model, the rspecifier of the examples and the output model, `write_cache`
    the file for the trainer's computation cache, or "". `make_trainer` gets the model and an array
    on the device. `holder` reads examples other than frame examples. `adapt`, given a key and an
    example, returns the example to train on. `load` replaces read_nnet.
    """
    from nnet3tools.io.files import prove_output
    from nnet3tools.nnet.finite import check_float, check_nnet_finite
    from nnet3tools.nnet.model_file import read_nnet
    from nnet3tools.training.example import EXAMPLE

    model_in, examples, model_out = files
    for name in (model_out, write_cache):
        if name:
            prove_output(name)
    options.ranks.check(examples, options.device.use_gpu)

    def read() -> Nnet:
        nnet = (load or read_nnet)(model_in)
        check_float(nnet, model_in)
        check_nnet_finite(nnet, model_in)
        return nnet

    run = _Run(options, examples, model_out, make_trainer, holder or EXAMPLE, adapt)
    if options.ranks.starts_ranks:
        nnet = read()
        return run_ranks(options.ranks.size, lambda ranks: run.train(lambda: nnet, ranks))
    with joined(options.ranks) as ranks:
        return run.train(read, ranks)


@dataclass(frozen=True)
class _Run:
    """A training by `train_model`, which has the same arguments."""

    options: TrainingRunOptions
    examples: str
    model_out: str
    make_trainer: Callable[[Nnet, Array | None], NnetTrainer]
    holder: Holder[NnetExample]
    adapt: Callable[[str, NnetExample], NnetExample] | None

    def train(self, model: Callable[[], Nnet], ranks: Ranks | None) -> int:
        """Train the model and write it; returns the exit status.

        `model()` reads the model. This process is one of `ranks`, of which rank 0 writes, or alone.
        """
        from nnet3tools import tensor
        from nnet3tools.nnet.device import move_nnet
        from nnet3tools.training.example import for_each_of_kind

        options, share = self.options, (0, 1)
        if ranks is not None and options.ranks.starts_ranks:
            share = ranks.rank, ranks.size
        tensor.random.seed(options.srand + share[0])
        device = options.device.choose(options.ranks.use_gpu(options.device.use_gpu))
        options.memory.apply(device)
        trainer = self.make_trainer(model(), device)
        joint = None if ranks is None else self._joint(ranks, trainer, device)
        with Progress("minibatches") as progress:

            def train(key: str, example: NnetExample) -> None:
                trainer.train(example)
                if joint is not None:
                    joint.step()
                progress.step()

            for_each_of_kind(self.holder, self.examples, train, trainer.ahead, self.adapt, share)
        if joint is not None:
            joint.finish()
        if joint is None or not joint.num_minibatches:
            trainer.require_data(self.examples)
        ok = trainer.print_total_stats() or joint is not None
        nnet = trainer.nnet
        move_nnet(nnet)  # back from the GPU
        trainer.require_finite()
        if joint is not None:
            nnet = joint.merged(nnet)
        if ranks is None or ranks.rank == 0:
            self._write(nnet, trainer)
        if ranks is not None:
            ranks.gather()  # all fail if the model could not be written
        return 0 if ok else 1

    def _joint(self, ranks: Ranks, trainer: NnetTrainer, device: Array) -> JointTraining:
        from nnet3tools.training.averaging import JointTraining

        if self.options.ranks.num_gpus:
            import cupy

            check_gpus(ranks, cupy.cuda.runtime)
        return JointTraining(ranks, trainer, self.options.ranks.average_interval, device)

    def _write(self, nnet: Nnet, trainer: NnetTrainer) -> None:
        from nnet3tools.nnet.model_file import write_nnet

        write_nnet(nnet, self.model_out, self.options.binary)
        log.log(f"Wrote model to {self.model_out}")
        try:
            trainer.finish()
        except UserError as error:
            # As in Kaldi, the model is written first, because it is the result of the work.
            raise DataError(
                f"the model was written to {self.model_out}, its computation cache was not: {error}"
            ) from None
