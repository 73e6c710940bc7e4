"""nnet3-combine: the average of the last models that is best on some examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnet3tools.cli.gpu import choose_device, gpu_math_option, use_gpu_option
from nnet3tools.cli.options import option, program
from nnet3tools.errors import EmptyError, OptionError
from nnet3tools.io import log

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet

USAGE = """Using a subset of training or held-out examples, compute the average over the
first n nnet3 models where we maximize the objective function for n. Note that
the order of models has been reversed before being fed into this binary. So we
are actually combining last n models. Inputs and outputs are 'raw' nnets.

Usage:  nnet3-combine [options] <nnet-in1> <nnet-in2> ... <nnet-inN> <valid-examples-in> <nnet-out>

e.g.:
 nnet3-combine 1.1.raw 1.2.raw 1.3.raw ark:valid.egs 2.raw
"""


@dataclass(frozen=True)
class Options:
    """Options of nnet3-combine."""

    binary: bool = option(True, "Write output in binary mode")
    max_objective_evaluations: int = option(
        30,
        "The maximum number of objective evaluations in order to figure out the best number of "
        "models to combine. It helps to speedup if the number of models provided to this binary "
        "is quite large (e.g. several hundred).",
    )
    batchnorm_test_mode: bool = option(
        False,
        "If true, set test-mode to true on any BatchNormComponents while evaluating objectives.",
    )
    dropout_test_mode: bool = option(
        True,
        "If true, set test-mode to true on any DropoutComponents and DropoutMaskComponents while "
        "evaluating objectives.",
    )
    use_gpu: str = use_gpu_option("yes")
    gpu_math: str = gpu_math_option()


@program("nnet3-combine", USAGE, Options, num_args=(3, None))
def main(options: Options, args: list[str]) -> None:
    """Read the examples, then model after model; write the best average."""
    from nnet3tools.io.files import prove_output
    from nnet3tools.nnet.arithmetic import set_batchnorm_test_mode, set_dropout_test_mode
    from nnet3tools.nnet.device import move_nnet
    from nnet3tools.nnet.model_file import read_nnet, write_nnet
    from nnet3tools.training.combination import combine_models
    from nnet3tools.training.example import NnetExample, for_each_example

    *models, examples_in, nnet_out = args
    if options.max_objective_evaluations < 1:
        raise OptionError("--max-objective-evaluations must be at least 1")
    prove_output(nnet_out)
    device = choose_device(options.use_gpu, options.gpu_math)
    examples: list[NnetExample] = []

    def keep(key: str, example: NnetExample) -> None:
        example.check_finite()
        examples.append(example)

    for_each_example(examples_in, keep)
    log.log(f"Read {len(examples)} examples.")
    if not examples:
        raise EmptyError(f"{examples_in}: no examples")
    nnets = ((name, read_nnet(name)) for name in models)

    def prepare(nnet: Nnet) -> None:
        if options.batchnorm_test_mode:
            set_batchnorm_test_mode(nnet, True)
        if options.dropout_test_mode:
            set_dropout_test_mode(nnet, True)

    limit = options.max_objective_evaluations
    best = combine_models(nnets, len(models), examples, limit, prepare, device)
    move_nnet(best)
    write_nnet(best, nnet_out, options.binary)
    log.log(f"Finished combining neural nets, wrote model to {nnet_out}")
