"""Code shared by the programs that combine models, independent of the objective."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nnet3tools.cli.device_options import DeviceOptions
from nnet3tools.cli.options import OptionGroup, option, option_group
from nnet3tools.errors import EmptyError, OptionError
from nnet3tools.io import log

if TYPE_CHECKING:
    from nnet3tools.io.holders import Holder
    from nnet3tools.nnet.nnet import Nnet
    from nnet3tools.tensor.arrays import Array
    from nnet3tools.training.combination import Diagnostics
    from nnet3tools.training.example import NnetExample


class CombineOptions(OptionGroup):
    """Options of the programs that combine models."""

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
    device: DeviceOptions = option_group("", DeviceOptions)

    def prepare(self, nnet: Nnet) -> None:
        """Set the test modes in which `nnet` is evaluated."""
        from nnet3tools.nnet.arithmetic import set_test_modes

        set_test_modes(nnet, self.batchnorm_test_mode, self.dropout_test_mode)


def combine_on_examples(
    options: CombineOptions,
    args: list[str],
    make_diagnostics: Callable[[Nnet, Array | None], Diagnostics],
    holder: Holder[NnetExample] | None = None,
    adapt: Callable[[str, NnetExample], NnetExample] | None = None,
) -> None:
    """Read examples and models, and write the best average of models.

    `args` are the models, the examples and the output model. `make_diagnostics` gets the first
    model and an array on the device. `holder` reads examples other than frame examples. `adapt`,
    given a key and an example, returns the example to evaluate.
    """
    from nnet3tools.io.files import prove_output
    from nnet3tools.nnet.device import move_nnet
    from nnet3tools.nnet.model_file import read_nnet, write_nnet
    from nnet3tools.training.combination import combine_models
    from nnet3tools.training.example import EXAMPLE, for_each_of_kind

    *models, examples_in, nnet_out = args
    if options.max_objective_evaluations < 1:
        raise OptionError("--max-objective-evaluations must be at least 1")
    prove_output(nnet_out)
    device = options.device.choose()
    first = read_nnet(models[0])
    diagnostics = make_diagnostics(first, device)
    examples: list[NnetExample] = []

    def keep(key: str, example: NnetExample) -> None:
        example.check_finite()
        examples.append(example)

    for_each_of_kind(holder or EXAMPLE, examples_in, keep, adapt=adapt)
    log.log(f"Read {len(examples)} examples.")
    if not examples:
        raise EmptyError(f"{examples_in}: no examples")
    nnets = ((name, first if i == 0 else read_nnet(name)) for i, name in enumerate(models))
    limit = options.max_objective_evaluations
    best = combine_models(nnets, len(models), examples, limit, options.prepare, diagnostics)
    move_nnet(best)
    write_nnet(best, nnet_out, options.binary)
    log.log(f"Finished combining neural nets, wrote model to {nnet_out}")
